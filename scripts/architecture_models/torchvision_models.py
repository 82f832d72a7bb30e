"""Models of torchvision with random weights; the images are small because the rule looks at the graph alone."""

from __future__ import annotations

from scripts.architecture_models.common import Model, images, live_head, videos
from tests.trace.families import torchvision

RESNET = "torchvision/models/resnet.py"
MODELS: dict[str, Model] = {
    "resnet18": Model(torchvision("resnet18"), images(32), 8, f"{RESNET}:102; 2 + 2 + 2 + 2 basic blocks"),
    "resnet50": Model(torchvision("resnet50"), images(32), 16, f"{RESNET}:160; 3 + 4 + 6 + 3 bottlenecks"),
    "resnet152": Model(torchvision("resnet152"), images(32), 50, f"{RESNET}:160; 3 + 8 + 36 + 3 bottlenecks"),
    "resnext50_32x4d": Model(
        torchvision("resnext50_32x4d"), images(32), 16, f"{RESNET}:160; 3 + 4 + 6 + 3 bottlenecks"
    ),
    "wide_resnet50_2": Model(
        torchvision("wide_resnet50_2"), images(32), 16, f"{RESNET}:160; 3 + 4 + 6 + 3 bottlenecks"
    ),
    "mobilenet_v2": Model(
        torchvision("mobilenet_v2"),
        images(32),
        10,
        "torchvision/models/mobilenetv2.py:62; 17 inverted residuals, 10 of stride 1 and equal width",
    ),
    "mobilenet_v3_large": Model(
        torchvision("mobilenet_v3_large"),
        images(32),
        10,
        "torchvision/models/mobilenetv3.py:114; 15 inverted residuals, 10 with use_res_connect",
    ),
    "mobilenet_v3_small": Model(
        torchvision("mobilenet_v3_small"),
        images(32),
        6,
        "torchvision/models/mobilenetv3.py:114; 11 inverted residuals, 6 with use_res_connect",
    ),
    "mnasnet1_0": Model(
        torchvision("mnasnet1_0"),
        images(32),
        10,
        "torchvision/models/mnasnet.py:61; 16 inverted residuals, the first of each of the 6 stacks changes its width",
    ),
    "efficientnet_b0": Model(
        torchvision("efficientnet_b0"),
        images(32),
        9,
        "torchvision/models/efficientnet.py:168; 16 MBConv, 9 with use_res_connect",
    ),
    "efficientnet_v2_s": Model(
        torchvision("efficientnet_v2_s"),
        images(32),
        35,
        "torchvision/models/efficientnet.py:229, :168; 8 FusedMBConv and 27 MBConv with use_res_connect",
    ),
    "regnet_y_400mf": Model(
        torchvision("regnet_y_400mf"), images(32), 16, "torchvision/models/regnet.py:145, :147; 1 + 3 + 6 + 6 blocks"
    ),
    "regnet_x_400mf": Model(
        torchvision("regnet_x_400mf"), images(32), 22, "torchvision/models/regnet.py:145, :147; 1 + 2 + 7 + 12 blocks"
    ),
    "convnext_tiny": Model(
        torchvision("convnext_tiny"), images(32), 18, "torchvision/models/convnext.py:66; 3 + 3 + 9 + 3 blocks"
    ),
    "vit_b_16": Model(
        live_head(torchvision("vit_b_16", image_size=32)),
        images(32),
        24,
        "torchvision/models/vision_transformer.py:115, :119; 12 layers x 2",
    ),
    "swin_t": Model(
        torchvision("swin_t"), images(32), 24, "torchvision/models/swin_transformer.py:453, :454; 12 blocks x 2"
    ),
    "swin_v2_t": Model(
        torchvision("swin_v2_t"), images(32), 24, "torchvision/models/swin_transformer.py:503, :504; 12 blocks x 2"
    ),
    "maxvit_t": Model(
        torchvision("maxvit_t"),
        images(224),
        55,
        "torchvision/models/maxvit.py:138, :379, :380; 11 layers x (1 MBConv + 2 partition attentions x 2)",
    ),
    "densenet121": Model(
        torchvision("densenet121"), images(32), 0, "torchvision/models/densenet.py: torch.cat, no sum of paths"
    ),
    "googlenet": Model(
        torchvision("googlenet", init_weights=False, aux_logits=False),
        images(32),
        0,
        "torchvision/models/googlenet.py: torch.cat, no sum of paths",
    ),
    "inception_v3": Model(
        torchvision("inception_v3", init_weights=False, aux_logits=False),
        images(75),
        0,
        "torchvision/models/inception.py: torch.cat, no sum of paths",
    ),
    "vgg16": Model(torchvision("vgg16"), images(32), 0, "torchvision/models/vgg.py: a chain"),
    "shufflenet_v2_x1_0": Model(
        torchvision("shufflenet_v2_x1_0"),
        images(32),
        0,
        "torchvision/models/shufflenetv2.py: torch.cat, no sum of paths",
        "its two halves are concatenated",
    ),
    "squeezenet1_1": Model(
        torchvision("squeezenet1_1"),
        images(32),
        0,
        "torchvision/models/squeezenet.py: torch.cat, no sum of paths",
        "its expansions are concatenated",
    ),
    # -- video
    "mc3_18": Model(
        torchvision("mc3_18"), videos(4, 32), 8, "torchvision/models/video/resnet.py:118; 2 + 2 + 2 + 2 basic blocks"
    ),
    "r2plus1d_18": Model(
        torchvision("r2plus1d_18"),
        videos(4, 32),
        8,
        "torchvision/models/video/resnet.py:118; 2 + 2 + 2 + 2 basic blocks",
    ),
    "swin3d_t": Model(
        torchvision("swin3d_t"),
        videos(4, 64),
        24,
        "torchvision/models/swin_transformer.py:453, :454, from video/swin_transformer.py; 12 blocks x 2",
    ),
}

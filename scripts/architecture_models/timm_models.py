"""Models of timm with random weights.

One or two for each family of architectures; images are small, and where a model has a depth to choose, it is small too.
"""

from __future__ import annotations

from scripts.architecture_models.common import Model, images, live_head
from tests.trace.families import timm

MODELS: dict[str, Model] = {
    "timm resnetv2_50": Model(timm("resnetv2_50"), images(32), 16, "timm/models/resnetv2.py:241; 3 + 4 + 6 + 3 blocks"),
    "timm resnetv2_50d_gn": Model(
        timm("resnetv2_50d_gn"), images(32), 16, "timm/models/resnetv2.py:241; 3 + 4 + 6 + 3 blocks"
    ),
    "timm seresnet18": Model(
        timm("legacy_seresnet18"), images(32), 8, "timm/models/senet.py:231; 2 + 2 + 2 + 2 blocks"
    ),
    "timm seresnet50": Model(
        timm("seresnet50"), images(32), 16, "timm/models/resnet.py:268; 3 + 4 + 6 + 3 bottlenecks"
    ),
    "timm resnet18d": Model(timm("resnet18d"), images(32), 8, "timm/models/resnet.py:148; 2 + 2 + 2 + 2 basic blocks"),
    "timm ecaresnet26t": Model(
        timm("ecaresnet26t"), images(32), 8, "timm/models/resnet.py:268; 2 + 2 + 2 + 2 bottlenecks"
    ),
    "timm resnetblur18": Model(
        timm("resnetblur18"), images(32), 8, "timm/models/resnet.py:148; 2 + 2 + 2 + 2 basic blocks"
    ),
    "timm resnest14d": Model(
        timm("resnest14d"), images(64), 4, "timm/models/resnest.py:141; 1 + 1 + 1 + 1 bottlenecks"
    ),
    "timm skresnet18": Model(timm("skresnet18"), images(32), 8, "timm/models/sknet.py:95; 2 + 2 + 2 + 2 blocks"),
    "timm res2net50_26w_4s": Model(
        timm("res2net50_26w_4s"),
        images(32),
        16,
        "timm/models/res2net.py:125; 3 + 4 + 6 + 3 bottlenecks",
        "the sums of neighbouring splits inside a bottleneck (res2net.py:104) hand one split on to the next "
        "and are no units",
    ),
    "timm gcresnet33ts": Model(
        timm("gcresnet33ts"), images(32), 10, "timm/models/byobnet.py:502; 2 + 3 + 3 + 2 bottlenecks"
    ),
    "timm seresnext26ts": Model(
        timm("seresnext26ts"), images(32), 8, "timm/models/byobnet.py:502; 2 + 2 + 2 + 2 bottlenecks"
    ),
    "timm botnet26t_256": Model(
        timm("botnet26t_256", img_size=64),
        images(64),
        8,
        "timm/models/byobnet.py:502, :1135; 5 bottlenecks and 3 attention blocks",
    ),
    "timm lambda_resnet26t": Model(
        timm("lambda_resnet26t", img_size=64),
        images(64),
        8,
        "timm/models/byobnet.py:502, :1135; 5 bottlenecks and 3 lambda blocks",
    ),
    "timm halonet26t": Model(
        timm("halonet26t"),
        images(256),
        8,
        "timm/models/byobnet.py:502, :1135; 5 bottlenecks and 3 halo attention blocks",
    ),
    "timm gernet_s": Model(
        timm("gernet_s"), images(32), 14, "timm/models/byobnet.py:412, :502; 4 basic blocks and 10 bottlenecks"
    ),
    "timm regnety_002": Model(
        timm("regnety_002"), images(32), 13, "timm/models/regnet.py:373; 1 + 1 + 4 + 7 bottlenecks"
    ),
    "timm regnetv_040": Model(timm("regnetv_040"), images(32), 22, "timm/models/regnet.py:480; 2 + 6 + 12 + 2 blocks"),
    "timm regnetz_b16": Model(
        timm("regnetz_b16"), images(32), 18, "timm/models/byobnet.py:502; 22 bottlenecks, 4 without a shortcut"
    ),
    "timm eca_nfnet_l0": Model(timm("eca_nfnet_l0"), images(32), 12, "timm/models/nfnet.py:281; 1 + 2 + 6 + 3 blocks"),
    "timm nf_resnet26": Model(timm("nf_resnet26"), images(32), 8, "timm/models/nfnet.py:281; 2 + 2 + 2 + 2 blocks"),
    "timm nf_regnet_b1": Model(timm("nf_regnet_b1"), images(32), 20, "timm/models/nfnet.py:281; 2 + 4 + 7 + 7 blocks"),
    "timm tresnet_m": Model(
        timm("tresnet_m"), images(64), 21, "timm/models/tresnet.py:70, :126; 3 + 4 basic blocks, 11 + 3 bottlenecks"
    ),
    "timm convnext_atto": Model(
        timm("convnext_atto"), images(32), 12, "timm/models/convnext.py:213; 2 + 2 + 6 + 2 blocks"
    ),
    "timm convnextv2_atto": Model(
        timm("convnextv2_atto"),
        images(32),
        12,
        "timm/models/convnext.py:213; 2 + 2 + 6 + 2 blocks",
        "the global response norm inside a block adds its input to a rescaled one and is no unit",
    ),
    "timm inception_next_atto": Model(
        timm("inception_next_atto"), images(64), 12, "timm/models/inception_next.py:195; 2 + 2 + 6 + 2 blocks"
    ),
    "timm mambaout_femto": Model(
        timm("mambaout_femto"), images(64), 18, "timm/models/mambaout.py:260; 3 + 3 + 9 + 3 blocks"
    ),
    "timm convmixer_768_32": Model(
        timm("convmixer_768_32"),
        images(32),
        32,
        "timm/models/convmixer.py:24; 32 blocks",
        "only the depthwise convolution has a skip",
    ),
    "timm fasternet_t0": Model(
        timm("fasternet_t0"), images(64), 13, "timm/models/fasternet.py:106; 1 + 2 + 8 + 2 blocks"
    ),
    "timm starnet_s1": Model(timm("starnet_s1"), images(64), 15, "timm/models/starnet.py:77; 2 + 2 + 8 + 3 blocks"),
    "timm tf_efficientnetv2_b0": Model(
        timm("tf_efficientnetv2_b0"),
        images(32),
        15,
        "timm/models/_efficientnet_blocks.py:338, :760; blocks with has_skip",
    ),
    "timm efficientnet_lite0": Model(
        timm("efficientnet_lite0"),
        images(32),
        9,
        "timm/models/_efficientnet_blocks.py:338; 15 inverted residuals, 9 with has_skip",
    ),
    "timm mobilenetv3_small_100": Model(
        timm("mobilenetv3_small_100"),
        images(32),
        6,
        "timm/models/_efficientnet_blocks.py:338; 10 inverted residuals, 6 with has_skip",
    ),
    "timm mobilenetv4_conv_small": Model(
        timm("mobilenetv4_conv_small"),
        images(64),
        10,
        "timm/models/_efficientnet_blocks.py:485; 12 universal inverted residuals, 10 with has_skip",
    ),
    "timm mobilenetv4_hybrid_medium": Model(
        timm("mobilenetv4_hybrid_medium"),
        images(64),
        27,
        "timm/models/_efficientnet_blocks.py:485, :607; 19 universal inverted residuals and 8 attentions with has_skip",
    ),
    "timm mixnet_s": Model(
        timm("mixnet_s"),
        images(32),
        11,
        "timm/models/_efficientnet_blocks.py:230, :338; 1 separable convolution and 10 inverted residuals "
        "with has_skip",
    ),
    "timm fbnetc_100": Model(
        timm("fbnetc_100"),
        images(32),
        15,
        "timm/models/_efficientnet_blocks.py:338; 21 inverted residuals, 15 with has_skip",
    ),
    "timm tinynet_e": Model(
        timm("tinynet_e"),
        images(32),
        3,
        "timm/models/_efficientnet_blocks.py:338; 9 inverted residuals, 3 with has_skip",
    ),
    "timm hardcorenas_a": Model(
        timm("hardcorenas_a"),
        images(64),
        5,
        "timm/models/_efficientnet_blocks.py:338; 10 inverted residuals, 5 with has_skip",
    ),
    "timm lcnet_050": Model(
        timm("lcnet_050"),
        images(64),
        0,
        "timm/models/_efficientnet_blocks.py:230; 13 separable convolutions, none with has_skip",
    ),
    "timm lcnetv2_small": Model(
        timm("lcnetv2_small"),
        images(64),
        1,
        "timm/models/lcnetv2.py:161; 11 blocks, 1 with use_shortcut",
        "the sum of depthwise convolutions of several sizes (lcnetv2.py:156) has no skip",
    ),
    "timm ghostnet_100": Model(timm("ghostnet_100"), images(32), 16, "timm/models/ghostnet.py:445; 16 bottlenecks"),
    "timm ghostnetv2_100": Model(timm("ghostnetv2_100"), images(64), 16, "timm/models/ghostnet.py:445; 16 bottlenecks"),
    "timm repghostnet_050": Model(
        timm("repghostnet_050"),
        images(64),
        48,
        "timm/models/repghost.py:225, :74; 16 bottlenecks, and 2 modules in each whose skip is a batch norm",
    ),
    "timm repvgg_a0": Model(
        timm("repvgg_a0"),
        images(32),
        17,
        "timm/models/byobnet.py:754; 22 blocks, 17 with an identity",
        "22 blocks, of which 5 change the shape and have no skip; the skip of the others is a batch norm",
    ),
    "timm mobileone_s0": Model(
        timm("mobileone_s0"),
        images(64),
        35,
        "timm/models/byobnet.py:956; 43 blocks, 35 with an identity",
        "the skip is a batch norm, as in RepVGG",
    ),
    "timm repvit_m0_9": Model(
        timm("repvit_m0_9"), images(32), 49, "timm/models/repvit.py:131, :211, :275; 23 blocks x 2 and 3 downsamplings"
    ),
    "timm fastvit_t8": Model(
        timm("fastvit_t8"),
        images(64),
        34,
        "timm/models/fastvit.py:720, :1003, :170; 10 mixer blocks x 2, and 14 re-parametrisable "
        "convolutions with an identity",
        "the identity of a re-parametrisable convolution is a batch norm; 10 of them lie inside a mixer",
    ),
    "timm fastvit_sa12": Model(
        timm("fastvit_sa12"),
        images(64),
        39,
        "timm/models/fastvit.py:720, :1003, :170, :896, :1062, :1063; 10 mixer blocks x 2, 14 convolutions "
        "with an identity, 1 position encoding, 2 attention blocks x 2",
    ),
    "timm dla34": Model(timm("dla34"), images(64), 12, "timm/models/dla.py:73; 12 basic blocks"),
    "timm dla46_c": Model(
        timm("dla46_c"),
        images(64),
        12,
        "timm/models/dla.py:133; 12 bottlenecks",
        "the sum of a root (dla.py:257) is switched off here",
    ),
    "timm hrnet_w18_small": Model(
        timm("hrnet_w18_small"),
        images(64),
        23,
        "timm/models/resnet.py:148, :268, from hrnet.py; 5 bottlenecks and 18 basic blocks",
        "the sums that fuse its resolutions are no units",
    ),
    "timm darknet53": Model(timm("darknet53"), images(32), 23, "timm/models/cspnet.py:242; 1 + 2 + 8 + 8 + 4 blocks"),
    "timm cspresnet50": Model(timm("cspresnet50"), images(32), 13, "timm/models/cspnet.py:189; 3 + 3 + 5 + 2 blocks"),
    "timm cs3darknet_s": Model(
        timm("cs3darknet_s"),
        images(32),
        9,
        "timm/models/cspnet.py:242; 1 + 3 + 3 + 2 blocks",
        "the branches of a stage are concatenated",
    ),
    "timm dpn48b": Model(
        timm("dpn48b"),
        images(32),
        16,
        "timm/models/dpn.py:146; 3 + 4 + 6 + 3 blocks",
        "only a part of the channels is summed; the rest is concatenated",
    ),
    "timm xception41": Model(
        timm("xception41"), images(64), 12, "timm/models/xception_aligned.py:179; 12 modules with a skip"
    ),
    "timm legacy_xception": Model(timm("legacy_xception"), images(64), 12, "timm/models/xception.py:121; 12 blocks"),
    "timm inception_resnet_v2": Model(
        timm("inception_resnet_v2"),
        images(96),
        40,
        "timm/models/inception_resnet_v2.py:92, :155, :229; 10 + 20 + 10 blocks",
    ),
    "timm rexnet_100": Model(
        timm("rexnet_100"),
        images(32),
        11,
        "timm/models/rexnet.py:132; 16 bottlenecks, 11 with a shortcut",
        "the skip goes to the first channels of a block only; the rest is concatenated",
    ),
    "timm ese_vovnet19b_dw": Model(
        timm("ese_vovnet19b_dw"),
        images(32),
        0,
        "timm/models/vovnet.py:104; 4 blocks, each the first of its stage and without the sum",
        "its layers are concatenated",
    ),
    "timm ese_vovnet39b": Model(
        timm("ese_vovnet39b"),
        images(32),
        2,
        "timm/models/vovnet.py:104; 6 blocks, 2 that are not the first of their stage",
    ),
    "timm selecsls42": Model(
        timm("selecsls42"), images(64), 0, "timm/models/selecsls.py:96, :99; torch.cat, no sum of paths"
    ),
    "timm rdnet_tiny": Model(
        timm("rdnet_tiny"),
        images(64),
        0,
        "timm/models/rdnet.py:126, :167; torch.cat, no sum of paths",
        "a dense network of ConvNeXt blocks without their skips",
    ),
    "timm hgnetv2_b4": Model(timm("hgnetv2_b4"), images(64), 2, "timm/models/hgnet.py:329; 6 blocks, 2 with residual"),
    "timm nasnet": Model(
        timm("nasnetalarge", num_features=384, stem_size=16),
        images(96),
        18,
        "timm/models/nasnet.py:317, :373; 3 first cells and 15 normal cells",
        "a cell also sums pools and pairs of convolutions, which are no units",
    ),
    "timm sequencer2d_s": Model(
        live_head(timm("sequencer2d_s", img_size=64, layers=(1, 1, 2, 1))),
        images(64),
        10,
        "timm/models/sequencer.py:239, :240; 5 blocks x 2",
        "the token mixer is a recurrent network over rows and columns",
    ),
    "timm vit_tiny": Model(
        timm("vit_tiny_patch16_224", img_size=32, depth=2),
        images(32),
        4,
        "timm/models/vision_transformer.py:215, :216; 2 blocks x 2",
    ),
    "timm vit, registers": Model(
        timm("vit_medium_patch16_reg4_gap_256", img_size=32, depth=2),
        images(32),
        4,
        "timm/models/vision_transformer.py:215, :216; 2 blocks x 2",
    ),
    "timm vit, parallel scaling": Model(
        timm("vit_pwee_patch16_reg1_gap_256", img_size=32, depth=3),
        images(32),
        3,
        "timm/models/vision_transformer.py:422; 3 blocks",
        "attention and feed-forward are parallel",
    ),
    "timm vit, parallel things": Model(
        timm("vit_small_patch16_18x2_224", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/vision_transformer.py:684, :685; 3 blocks x 2",
        "two attentions, then two feed-forwards, summed by a stack",
    ),
    "timm vit, relative positions": Model(
        timm("vit_relpos_small_patch16_224", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/vision_transformer_relpos.py:163, :164; 3 blocks x 2",
    ),
    "timm vit, resnet stem": Model(
        timm("vit_base_resnet26d_224", img_size=64, depth=2),
        images(64),
        12,
        "timm/models/resnet.py:268, vision_transformer.py:215, :216; 8 bottlenecks and 2 blocks x 2",
    ),
    "timm deit_tiny": Model(
        timm("deit_tiny_patch16_224", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/vision_transformer.py:215, :216; 3 blocks x 2",
    ),
    "timm deit_tiny, distilled": Model(
        timm("deit_tiny_distilled_patch16_224", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/vision_transformer.py:215, :216; 3 blocks x 2",
    ),
    "timm beit_base": Model(
        timm("beit_base_patch16_224", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/beit.py:389, :390; 3 blocks x 2",
    ),
    "timm eva02_tiny": Model(
        timm("eva02_tiny_patch14_224", img_size=28, depth=3),
        images(28),
        6,
        "timm/models/eva.py:443, :447; 3 blocks x 2",
    ),
    "timm dinov3, gated": Model(
        timm("vit_small_plus_patch16_dinov3", img_size=32, depth=3),
        images(32),
        6,
        "timm/models/eva.py:443, :447; 3 blocks x 2",
    ),
    "timm naflexvit": Model(
        timm("naflexvit_base_patch16_gap", depth=3, embed_dim=48, num_heads=3),
        images(32),
        6,
        "timm/models/vision_transformer.py:215, :216, from naflexvit.py; 3 blocks x 2",
    ),
    "timm samvit": Model(
        timm("samvit_base_patch16", img_size=32, depth=3, embed_dim=48, num_heads=3),
        images(32),
        6,
        "timm/models/vision_transformer_sam.py:276, :279; 3 blocks x 2",
    ),
    "timm vitamin_small": Model(
        timm("vitamin_small_224", img_size=64),
        images(64),
        34,
        "timm/models/vitamin.py:215, vision_transformer.py:215, :216; 6 convolutional blocks and 14 blocks x 2",
    ),
    "timm cait_xxs24": Model(
        timm("cait_xxs24_224", img_size=32, depth=3),
        images(32),
        9,
        "timm/models/cait.py:229, :230, :127, :128; 3 blocks x 2 and 2 class blocks x 2, less one",
        "three layers of two, two class layers of two; the first class token is a parameter, not a state",
    ),
    "timm xcit_nano_12": Model(
        timm("xcit_nano_12_p16_224", depth=3),
        images(32),
        13,
        "timm/models/xcit.py:345, :348, :349, :227, :237; 3 blocks x 3 and 2 class blocks x 2",
    ),
    "timm volo_d1": Model(
        timm("volo_d1_224", img_size=64),
        images(64),
        40,
        "timm/models/volo.py:188, :189, :308, :309, :444, :445; 4 outlookers x 2, 14 transformers x 2, 2 "
        "class blocks x 2",
    ),
    "timm convit_tiny": Model(
        timm("convit_tiny", img_size=32, depth=3), images(32), 6, "timm/models/convit.py:252, :253; 3 blocks x 2"
    ),
    "timm swinv2_tiny": Model(
        timm("swinv2_tiny_window8_256", img_size=64),
        images(64),
        24,
        "timm/models/swin_transformer_v2.py:527, :529; 12 blocks x 2",
    ),
    "timm swinv2_cr_tiny": Model(
        timm("swinv2_cr_tiny_224", img_size=64),
        images(64),
        24,
        "timm/models/swin_transformer_v2_cr.py:468, :472; 12 blocks x 2",
    ),
    "timm coatnet_nano": Model(
        timm("coatnet_nano_rw_224", img_size=64),
        images(64),
        25,
        "timm/models/maxxvit.py:636, :490, :491; 7 MBConv and 9 transformer blocks x 2",
    ),
    "timm coatnext_nano": Model(
        timm("coatnext_nano_rw_224", img_size=64),
        images(64),
        25,
        "timm/models/maxxvit.py:739, :490, :491; 7 ConvNeXt blocks and 9 transformer blocks x 2",
    ),
    "timm maxvit_rmlp_pico": Model(
        timm("maxvit_rmlp_pico_rw_256", img_size=64),
        images(64),
        55,
        "timm/models/maxxvit.py:636, :861, :862; 11 MBConv and 22 partition attentions x 2",
    ),
    "timm maxxvit_rmlp_nano": Model(
        timm("maxxvit_rmlp_nano_rw_256", img_size=64),
        images(64),
        35,
        "timm/models/maxxvit.py:739, :861, :862; 7 ConvNeXt blocks and 14 partition attentions x 2",
    ),
    "timm levit_128s": Model(
        timm("levit_128s"), images(224), 20, "timm/models/levit.py:586, :587, :540; 9 blocks x 2 and 2 downsamplings"
    ),
    "timm pit_ti": Model(
        timm("pit_ti_224"), images(224), 24, "timm/models/vision_transformer.py:215, :216, from pit.py; 12 blocks x 2"
    ),
    "timm crossvit_9": Model(
        timm("crossvit_9_240"),
        images(240),
        30,
        "timm/models/crossvit.py:167 and vision_transformer.py:215, :216; 3 stages of 4 blocks x 2 and 2 crossings",
    ),
    "timm coat_tiny": Model(
        timm("coat_tiny", img_size=64),
        images(64),
        78,
        "timm/models/coat.py:177, :239, :244, :368 to :370, :379 to :381; 8 serial blocks x 3, 6 parallel "
        "blocks x (3 position encodings + 6)",
        "each block starts with a convolutional position encoding that is added to the image tokens",
    ),
    "timm coat_lite_tiny": Model(
        timm("coat_lite_tiny", img_size=64), images(64), 24, "timm/models/coat.py:177, :239, :244; 8 serial blocks x 3"
    ),
    "timm davit_tiny": Model(
        timm("davit_tiny"),
        images(64),
        48,
        "timm/models/davit.py:59, :270, :276, :457, :463; 12 blocks x (2 position encodings + 2)",
    ),
    "timm hiera_tiny": Model(
        live_head(timm("hiera_tiny_224")), images(224), 24, "timm/models/hiera.py:412, :415; 12 blocks x 2"
    ),
    "timm sam2_hiera_tiny": Model(
        live_head(timm("sam2_hiera_tiny")), images(64), 24, "timm/models/hieradet_sam2.py:226, :227; 12 blocks x 2"
    ),
    "timm mvitv2_tiny": Model(
        timm("mvitv2_tiny", img_size=64),
        images(64),
        30,
        "timm/models/mvitv2.py:529, :633, :637; 10 blocks x 3",
        "its attention adds the pooled queries to its result: the design calls this a residual pooling connection",
    ),
    "timm edgenext_xx_small": Model(
        timm("edgenext_xx_small"),
        images(64),
        15,
        "timm/models/edgenext.py:138, :260, :270; 9 convolutional blocks and 3 split blocks x 2",
    ),
    "timm mobilevit_xxs": Model(
        timm("mobilevit_xxs"),
        images(64),
        21,
        "timm/models/byobnet.py:502, vision_transformer.py:215, :216; 3 bottlenecks and 9 blocks x 2",
        "in its transformers the batch and the places in a patch are one axis",
    ),
    "timm mobilevitv2_050": Model(
        timm("mobilevitv2_050"),
        images(64),
        19,
        "timm/models/byobnet.py:502, mobilevit.py:454, :463; 1 bottleneck and 9 linear transformer blocks x 2",
    ),
    "timm caformer_s18": Model(
        timm("caformer_s18"), images(64), 36, "timm/models/metaformer.py:412, :418; 18 blocks x 2"
    ),
    "timm convformer_s18": Model(
        timm("convformer_s18"), images(32), 36, "timm/models/metaformer.py:412, :418; 18 blocks x 2"
    ),
    "timm poolformer_s12": Model(
        timm("poolformer_s12"), images(32), 24, "timm/models/metaformer.py:412, :418; 12 blocks x 2"
    ),
    "timm resmlp_12": Model(
        live_head(timm("resmlp_12_224")), images(224), 24, "timm/models/mlp_mixer.py:169, :170; 12 blocks x 2"
    ),
    "timm gmlp_ti16": Model(
        live_head(timm("gmlp_ti16_224")), images(224), 30, "timm/models/mlp_mixer.py:261; 30 blocks"
    ),
    "timm mixer_s32": Model(
        live_head(timm("mixer_s32_224", img_size=64)),
        images(64),
        16,
        "timm/models/mlp_mixer.py:100, :101; 8 blocks x 2",
    ),
    "timm gmixer_12": Model(
        live_head(timm("gmixer_12_224", img_size=64)),
        images(64),
        24,
        "timm/models/mlp_mixer.py:100, :101; 12 blocks x 2",
    ),
    "timm efficientformer_l1": Model(
        timm("efficientformer_l1"),
        images(224),
        30,
        "timm/models/efficientformer.py:269, :270, :307, :308; 15 blocks x 2",
    ),
    "timm efficientformerv2_s0": Model(
        timm("efficientformerv2_s0"),
        images(224),
        18,
        "timm/models/efficientformer_v2.py:529, :530; 14 blocks, 4 of them with a token mixer",
    ),
    "timm efficientvit_b0": Model(
        timm("efficientvit_b0"),
        images(64),
        11,
        "timm/models/efficientvit_mit.py:458; 15 residual blocks, 11 with a shortcut",
    ),
    "timm efficientvit_m0": Model(
        timm("efficientvit_m0"),
        images(224),
        38,
        "timm/models/efficientvit_msra.py:132; 6 blocks x 5 and 2 downsamplings x 4",
        "a head's input is the sum of a split and of the head before it (efficientvit_msra.py:258): no unit",
    ),
    "timm efficientvim_m1": Model(
        timm("efficientvim_m1"),
        images(224),
        28,
        "timm/models/efficientvim.py:385, :390, :393, :396, :255, :257; 6 blocks x 4 and 2 patch mergings x 2",
        "each sum of a block is an interpolation: x + a (F(x) - x)",
    ),
    "timm lowformer_b0": Model(
        timm("lowformer_b0"), images(64), 21, "timm/models/lowformer.py:72; 25 residual blocks, 21 with a shortcut"
    ),
    "timm cpubone_nano": Model(
        timm("cpubone_nano"), images(64), 9, "timm/models/cpubone.py:129; 13 residual blocks, 9 with a shortcut"
    ),
    "timm csatv2": Model(
        timm("csatv2", img_size=64),
        images(64),
        68,
        "timm/models/csatv2.py:368, :410, :417, :506, :515, :523, :545; 14 blocks x (1 + 2 of the spatial "
        "transformer + 1 position encoding) and 4 transformer blocks x (2 + 1 position encoding)",
        "the spatial transformers act on a map of one channel that gates the block's branch",
    ),
    "timm iformer_t": Model(timm("iformer_t"), images(64), 26, "timm/models/iformer.py:291, :292; 26 residuals"),
    "timm shvit_s1": Model(timm("shvit_s1"), images(224), 39, "timm/models/shvit.py:36; 39 residuals"),
    "timm swiftformer_xs": Model(
        timm("swiftformer_xs"),
        images(64),
        24,
        "timm/models/swiftformer.py:109, :225, :275, :276; 12 convolutional encoders and 4 blocks x 3",
        "the attention adds its normalised queries, a linear map of the state: two parallel maps, no unit",
    ),
    "timm focalnet_tiny_srf": Model(
        timm("focalnet_tiny_srf"), images(64), 24, "timm/models/focalnet.py:196, :199; 12 blocks x 2"
    ),
    "timm gcvit_xxtiny": Model(
        timm("gcvit_xxtiny", img_size=64),
        images(64),
        35,
        "timm/models/gcvit.py:90, :310, :311; 11 MBConv and 12 blocks x 2",
    ),
    "timm nest_tiny": Model(
        timm("nest_tiny", img_size=64), images(64), 24, "timm/models/nest.py:154, :155; 12 layers x 2"
    ),
    "timm nextvit_small": Model(
        timm("nextvit_small"),
        images(64),
        44,
        "timm/models/nextvit.py:240, :243, :414, :417, :421; 16 convolutional blocks x 2 and 4 transformer blocks x 3",
    ),
    "timm pvt_v2_b0": Model(timm("pvt_v2_b0"), images(64), 16, "timm/models/pvt_v2.py:199, :200; 8 blocks x 2"),
    "timm twins_pcpvt_small": Model(
        timm("twins_pcpvt_small", img_size=64),
        images(64),
        36,
        "timm/models/twins.py:251, :252, :278; 16 blocks x 2 and 4 position convolutions",
    ),
    "timm twins_svt_small": Model(
        timm("twins_svt_small", img_size=64),
        images(64),
        40,
        "timm/models/twins.py:251, :252, :278; 18 blocks x 2 and 4 position convolutions",
    ),
    "timm tnt_s": Model(
        timm("tnt_s_patch16_224", img_size=32, depth=3),
        images(32),
        15,
        "timm/models/tnt.py:153, :154, :165, :167, :168; 3 blocks x 5",
        "two streams: pixels (batch folded with patches), and patches, which the pixels are added to",
    ),
    "timm tiny_vit_5m": Model(
        timm("tiny_vit_5m_224"), images(224), 22, "timm/models/tiny_vit.py:118, :416, :422; 2 MBConv and 10 blocks x 2"
    ),
    "timm visformer_tiny": Model(
        timm("visformer_tiny", img_size=64),
        images(64),
        23,
        "timm/models/visformer.py:176, :177; 15 blocks, 8 of them with attention",
    ),
}

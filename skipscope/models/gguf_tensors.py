"""The tensors of a GGUF file under the names of a transformers model, dequantised one at a time.

What transformers does when it loads such a file (`load_gguf_checkpoint`), with its own tables of names and its own
changes of tensors (the rows of queries and keys of a Llama are stored in another order), but without all of them in
memory together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from skipscope.errors import InputError, first_line
from skipscope.models.mapped_files import InFiles


def gguf_tensors(file: Path, skeleton: nn.Module) -> dict[str, Tensor]:
    """In float32, as pages of files. skeleton: the model without values, for its names."""
    from gguf import GGUFReader, dequantize

    try:
        from transformers import modeling_gguf_pytorch_utils as theirs

        processors, names_of = theirs.TENSOR_PROCESSORS, theirs.get_gguf_hf_weights_map
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{file} cannot be read tensor by tensor with this version of transformers ({first_line(error)}); load it "
            "into memory, without memory=, or convert it to safetensors with save_pretrained"
        ) from error
    reader = GGUFReader(file)
    architecture = reader.fields["general.architecture"].contents()
    processor = processors.get(architecture, theirs.TensorProcessor)(config=_config(skeleton))
    names = names_of(skeleton, processor)
    found = InFiles()
    parsed: dict[str, Any] = {"tensors": found}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        made = processor.process(weights=values, name=tensor.name, tensor_key_mapping=names, parsed_parameters=parsed)
        if made.name in names:
            found[names[made.name]] = torch.from_numpy(numpy.array(made.weights))
    return found


def _config(skeleton: nn.Module) -> dict[str, Any]:
    config: Any = skeleton.config
    return dict(config.get_text_config().to_dict())

"""The batches of one network's training. What is random in them belongs to an epoch: see `surroundings.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from skipscope.data.augmentation import Augmentation, augmentation
from skipscope.data.dataset import AS_THEY_ARE, Split
from skipscope.numerics import seed_of
from skipscope.training.settings import Settings


def order_of(samples: int, settings: Settings, epoch: int) -> Tensor:
    """In which order the samples are seen; on the CPU, so that it is the same on every device."""
    generator = torch.Generator("cpu").manual_seed(seed_of("order", settings.seed, epoch))
    return torch.randperm(samples, generator=generator, device="cpu")


def changes_of(settings: Settings, epoch: int, device: torch.device, rank: int = 0) -> torch.Generator:
    """What the augmentation of an epoch is drawn from. rank: of the process, where several work together."""
    return torch.Generator(device).manual_seed(seed_of("augmentation", settings.seed, epoch, rank))


def augmentation_of(settings: Settings, split: Split) -> Augmentation:
    """Colours are changed in [0, 1], so it must know how the split's pixels were normalised."""
    return augmentation(settings.augmentation, getattr(split, "normalisation", AS_THEY_ARE))


class Batches:
    """Images and labels on the device of the training, in the precision and the layout of the network."""

    def __init__(
        self,
        split: Split,
        settings: Settings,
        device: torch.device,
        dtype: torch.dtype,
        layout: torch.memory_format,
        *,
        rank: int = 0,
        part: Callable[[Tensor], Tensor] = lambda chosen: chosen,
    ) -> None:
        """rank, part: of this process, where several share each batch."""
        self._split, self._settings, self._device, self._dtype, self._layout = split, settings, device, dtype, layout
        self._rank, self._part = rank, part
        self._augmentation = augmentation_of(settings, split)

    def __len__(self) -> int:
        """In an epoch; what does not fill a last one is left out."""
        return len(self._split) // self._settings.batch

    def of(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        split, device, batch = self._split, self._device, self._settings.batch
        order = order_of(len(split), self._settings, epoch).to(split.device)
        changes = changes_of(self._settings, epoch, device, self._rank)
        for chosen in order[: len(self) * batch].split(batch):
            mine = self._part(chosen)
            images = split.images(mine).to(device, self._dtype, non_blocking=True)
            images = self._augmentation(images, changes)
            if images.dim() == 4:
                images = images.contiguous(memory_format=self._layout)
            yield images, split.labels[mine].to(device, non_blocking=True)

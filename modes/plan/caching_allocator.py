"""What torch's allocator for CUDA makes of a step: it rounds sizes up, and cuts blocks out of segments that it keeps.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings (no expandable segments, no limit to
splitting, one stream):

- a size is rounded up to a multiple of 512 bytes;
- up to 1 MiB it comes out of segments of 2 MiB, above that and below 10 MiB of 20 MiB; larger ones have a segment of
  their own, rounded up to 2 MiB;
- the smallest free block that is large enough is taken; what is over is cut off if it has 512 bytes at least (small
  segments), or more than 1 MiB (the others);
- freed blocks unite with free neighbours; segments are kept;

- where the device has no room for another segment, all those that nothing uses are given back first.

Which of equally large free blocks is taken depends on addresses: here, the one whose segment is older.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .ledger import Block, Event

ROUNDED_TO = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
OWN_SEGMENT = 10 << 20
OWN_ROUNDED_TO = 2 << 20


@dataclass(eq=False)
class Piece:
    """A part of a segment, free or taken, between its neighbours."""

    address: int
    nbytes: int
    free: bool = True
    before: Piece | None = None
    after: Piece | None = None


@dataclass
class Pool:
    """The free pieces of the small segments, or of the others, by size and address."""

    splits_at: int
    free: list[tuple[int, int, Piece]] = field(default_factory=list)

    def take(self, nbytes: int) -> Piece | None:
        """The best piece that is free, no longer among the free."""
        place = bisect_left(self.free, (nbytes, -1))
        return self.free.pop(place)[2] if place < len(self.free) else None

    def give(self, piece: Piece) -> None:
        """Add a free piece."""
        piece.free = True
        insort(self.free, (piece.nbytes, piece.address, piece))

    def whole(self) -> list[Piece]:
        """The segments that nothing uses."""
        return [piece for _, _, piece in self.free if piece.before is None and piece.after is None]

    def drop(self, piece: Piece) -> None:
        """No longer among the free: it became a part of another."""
        del self.free[bisect_left(self.free, (piece.nbytes, piece.address))]


class CachingAllocator:
    """``allocated``: bytes of the pieces that are taken now, as ``torch.cuda.memory_allocated()`` counts them;
    ``reserved``: bytes of all segments now, ``most_reserved``: at most. ``limit``: the bytes that the device has; what
    doesn't fit is given out all the same.

    >>> allocator = CachingAllocator()
    >>> allocator.take(1).nbytes, allocator.reserved
    (512, 2097152)
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.allocated = self.reserved = self.most_reserved = self._address = 0
        self._small, self._large = Pool(ROUNDED_TO), Pool(SMALL + 1)

    def take(self, nbytes: int) -> Piece:
        """Memory for a tensor."""
        rounded = max(ROUNDED_TO, _up(nbytes, ROUNDED_TO))
        pool = self._small if rounded <= SMALL else self._large
        piece = pool.take(rounded) or self._segment(rounded)
        if piece.nbytes - rounded >= pool.splits_at:
            rest = Piece(piece.address + rounded, piece.nbytes - rounded, before=piece, after=piece.after)
            if rest.after is not None:
                rest.after.before = rest
            piece.nbytes, piece.after = rounded, rest
            pool.give(rest)
        piece.free = False
        self.allocated += piece.nbytes
        return piece

    def give(self, piece: Piece, nbytes: int) -> None:
        """A tensor of ``nbytes`` gives back its memory."""
        self.allocated -= piece.nbytes
        pool = self._small if max(ROUNDED_TO, _up(nbytes, ROUNDED_TO)) <= SMALL else self._large
        for neighbour in (piece.before, piece.after):
            if neighbour is not None and neighbour.free:
                pool.drop(neighbour)
                _unite(piece, neighbour)
        pool.give(piece)

    def _segment(self, rounded: int) -> Piece:
        if rounded <= SMALL:
            nbytes = SMALL_SEGMENT
        elif rounded < OWN_SEGMENT:
            nbytes = LARGE_SEGMENT
        else:
            nbytes = _up(rounded, OWN_ROUNDED_TO)
        if self.limit is not None and self.reserved + nbytes > self.limit:
            self._release()
        self.reserved += nbytes
        self.most_reserved = max(self.most_reserved, self.reserved)
        self._address += nbytes
        return Piece(self._address - nbytes, nbytes)

    def _release(self) -> None:
        for pool in (self._small, self._large):
            for piece in pool.whole():
                pool.drop(piece)
                self.reserved -= piece.nbytes


def _unite(piece: Piece, neighbour: Piece) -> None:
    piece.nbytes += neighbour.nbytes
    if neighbour is piece.before:
        piece.address, piece.before = neighbour.address, neighbour.before
        if piece.before is not None:
            piece.before.after = piece
    else:
        piece.after = neighbour.after
        if piece.after is not None:
            piece.after.before = piece


def _up(nbytes: int, multiple: int) -> int:
    return -(-nbytes // multiple) * multiple


def granted(events: Iterable[Event], allocator: CachingAllocator) -> Iterator[Event]:
    """The events with the bytes that the allocator gives for them."""
    pieces: dict[Block, tuple[Piece, int]] = {}
    for event in events:
        if event.nbytes > 0:
            piece = allocator.take(event.nbytes)
            pieces[event.block] = piece, event.nbytes
            yield event._replace(nbytes=piece.nbytes)
        else:
            piece, nbytes = pieces.pop(event.block)
            yield event._replace(nbytes=-piece.nbytes)
            allocator.give(piece, nbytes)

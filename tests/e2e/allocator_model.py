"""The allocator model once more, in plain Python: slow, short, and with data structures of its own.

It is the oracle of test_snapshot_model.py. Free blocks are sorted lists, addresses are numbers, expandable segments map page
by page as PyTorch's do. Semantics: c10/cuda/CUDACachingAllocator.cpp of 2.8 to 2.15.
"""

import bisect

MIB = 1 << 20
MIN_BLOCK = 512
SMALL_SIZE = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_ALONE = 10 * MIB
ROUND_LARGE = 2 * MIB
UNLIMITED = (1 << 64) - 1


class OutOfMemory(Exception):
    pass


class Config:
    def __init__(self, expandable=False, max_split=UNLIMITED, gc=0.0, fraction=1.0, large=20 * MIB, roundup=0, by_age=False):
        self.expandable = expandable
        self.max_split = max_split
        self.gc = gc
        self.fraction = fraction
        self.large = large
        self.roundup = roundup
        self.by_age = by_age

    def text(self):
        parts = []
        if self.large != 20 * MIB:
            parts.append(f"large_segment_size_mb:{self.large // MIB}")
        if self.expandable:
            parts.append("expandable_segments:True")
        if self.max_split != UNLIMITED:
            parts.append(f"max_split_size_mb:{self.max_split // MIB}")
        if self.gc:
            parts.append(f"garbage_collection_threshold:{self.gc}")
        if self.fraction < 1:
            parts.append(f"per_process_memory_fraction:{self.fraction}")
        if self.roundup:
            parts.append(f"roundup_power2_divisions:{self.roundup}")
        return ",".join(parts) or "-"

    def round_size(self, size):
        if size < MIN_BLOCK:
            return MIN_BLOCK
        if self.roundup > 1 and size > MIN_BLOCK * self.roundup:
            if size & (size - 1) == 0:
                return size
            floor = 1 << (size.bit_length() - 1)
            step = floor >> (self.roundup.bit_length() - 1)
            if step == 0:
                return floor << 1
            low = size & ~(step - 1)
            return size if low == size else low + step
        return -(-size // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, rounded):
        if rounded <= SMALL_SIZE:
            return SMALL_SEGMENT
        if rounded < LARGE_ALONE:
            return self.large
        return -(-rounded // ROUND_LARGE) * ROUND_LARGE


class Block:
    def __init__(self, stream, size, pool, addr, range_=None, age=0, mapped=True):
        self.stream, self.size, self.pool, self.addr, self.range, self.age = stream, size, pool, addr, range_, age
        self.mapped = mapped
        self.allocated = self.pending = False
        self.prev = self.next = None
        self.uses = set()
        self.base = 0
        self.requested = 0
        self.ticket = 0  # of its wait; the object may be another one's by the time somebody asks

    def by_size(self):
        return (self.stream, self.size, self.age, self.addr)

    def by_address(self):
        return (self.stream, self.addr)

    def is_split(self):
        return self.prev is not None or self.next is not None

    def is_cached(self):
        return self.mapped and not self.allocated and not self.pending


def free_neighbour(block):
    return block is not None and not block.allocated and not block.pending and not block.uses


class Blocks:
    """In order of a key; a list of keys and a dict."""

    def __init__(self, key):
        self.key, self.keys, self.at = key, [], {}

    def add(self, block):
        key = self.key(block)
        bisect.insort(self.keys, key)
        self.at[key] = block

    def remove(self, block):
        key = self.key(block)
        self.keys.pop(bisect.bisect_left(self.keys, key))
        del self.at[key]

    def index(self, *key):
        return bisect.bisect_left(self.keys, key)

    def get(self, index, stream=None):
        """The block at that place, None behind the end or on another stream."""
        if not 0 <= index < len(self.keys):
            return None
        block = self.at[self.keys[index]]
        return block if stream is None or block.stream == stream else None

    def all(self):
        return [self.at[key] for key in self.keys]


class Pool:
    def __init__(self, small, number):
        self.small, self.number, self.calls = small, number, 0
        self.blocks, self.unmapped = Blocks(Block.by_size), Blocks(Block.by_address)

    def insert(self, block):
        block.base = self.calls
        self.blocks.add(block)


class Range:
    def __init__(self, base, page, total):
        self.base, self.page = base, page
        self.size = -(-(total + total // 8) // page) * page

    def inner(self, block):
        """First and last byte of the whole pages in a block, from the base."""
        offset = block.addr - self.base
        return -(-offset // self.page) * self.page, (offset + block.size) // self.page * self.page


class Model:
    def __init__(self, total, other, config, falling=False):
        self.total, self.other, self.config, self.falling = total, other, config, falling
        self.limit = int(config.fraction * total) if config.fraction < 1 else None
        self.pools, self.pending, self.events_ready = {}, [], False
        self.next_address, self.ages, self.tickets = 0x7F0000000000, 0, 0
        self.physical = self.reserved = self.allocated = self.active = self.requested = 0
        self.peak_reserved = self.peak_allocated = self.inactive_split = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0

    def answer(self, what):
        numbers = (what, self.inactive_split, self.reserved, self.allocated, self.active, self.requested, self.peak_reserved,
                   self.peak_allocated, self.retries, self.ooms, self.device_allocs, self.device_frees)  # fmt: skip
        return " ".join(map(str, numbers))

    # -- the device

    def pool(self, small, number=0):
        key = (number, small)
        if key not in self.pools:
            self.pools[key] = Pool(small, number)
        return self.pools[key]

    def fits(self, size):
        return self.physical + size + self.other <= self.total

    def over_limit(self, size):
        return self.limit is not None and self.reserved + size > self.limit

    def collects(self):
        return self.limit is not None and self.config.gc > 0

    def take(self, size):
        self.physical += size
        self.reserved += size
        self.device_allocs += 1
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def give_back(self, size):
        self.physical -= size
        self.reserved -= size
        self.device_frees += 1

    def address(self, size):
        span = -(-size // ROUND_LARGE) * ROUND_LARGE + ROUND_LARGE
        if self.falling:
            self.next_address -= span
            return self.next_address
        self.next_address += span
        return self.next_address - span

    def age(self):
        if not self.config.by_age:
            return 0
        self.ages += 1
        return self.ages

    # -- cached blocks

    def find(self, pool, size, stream):
        def reach(block):
            return block.size + (block.next.size if block.next is not None and not block.next.mapped else 0)

        config, blocks = self.config, pool.blocks
        at = blocks.index(stream, size, -1, 0)
        block = blocks.get(at, stream)
        if block is None:
            return None
        if block.range is not None and config.expandable:
            while block.range is not None:
                after = blocks.get(at + 1, stream)
                if after is None or reach(after) >= reach(block):
                    break
                at, block = at + 1, after
        elif block.range is not None:
            while block is not None and block.range is not None:
                at += 1
                block = blocks.get(at, stream)
            if block is None:
                return None
        if size < config.max_split <= block.size:
            return None
        if size >= config.max_split and block.size >= size + config.large:
            return None
        return block

    def would_release(self, size, stream, number):
        rounded = self.config.round_size(size)
        if self.find(self.pool(rounded <= SMALL_SIZE, number), rounded, stream) is not None:
            return False
        if self.collects() and self.reserved > int(self.config.gc * self.limit):
            return True
        segment = self.config.segment_size(rounded)
        return self.over_limit(segment) or not self.fits(rounded if self.config.expandable else segment)

    def from_driver(self, pool, size, segment, stream):
        if self.over_limit(segment):
            return None
        if self.config.expandable:
            return self.expand(pool, size, stream)
        if not self.fits(segment):
            return None
        self.take(segment)
        return Block(stream, segment, pool, self.address(segment), age=self.age())

    # -- expandable segments

    def place(self, pool, size, stream):
        at = pool.unmapped.index(stream, 0)
        while (hole := pool.unmapped.get(at, stream)) is not None:
            first = hole.prev if free_neighbour(hole.prev) else hole
            have, block = 0, first
            while have < size and free_neighbour(block):
                have += block.size
                block = block.next
            if have >= size:
                return first
            at += 1
        range_ = Range(0, SMALL_SEGMENT if pool.small else self.config.large, self.total)
        range_.base = self.address(range_.size)
        block = Block(stream, range_.size, pool, range_.base, range_, self.age(), mapped=False)
        pool.unmapped.add(block)
        return block

    def expand(self, pool, size, stream):
        block = self.place(pool, size, stream)
        if not block.mapped and not self.map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.next
            if not self.map(after, min(size - block.size, after.size)):
                return None
            block = after
        pool.blocks.remove(block)
        return block

    def map(self, block, size):
        range_, pool = block.range, block.pool
        offset = block.addr - range_.base
        length = -(-(offset + size) // range_.page) * range_.page - offset // range_.page * range_.page
        if not self.fits(length):
            return False
        pool.unmapped.remove(block)
        block.mapped = True
        if length < block.size:
            rest = Block(block.stream, block.size - length, pool, block.addr + length, range_, block.age, mapped=False)
            rest.prev, rest.next = block, block.next
            if block.next is not None:
                block.next.prev = rest
            block.next, block.size = rest, length
            pool.unmapped.add(rest)
        self.merge(block, block.prev)
        self.merge(block, block.next)
        pool.insert(block)
        self.take(length)
        return True

    def unmap(self, block):
        range_, pool = block.range, block.pool
        begin, end = range_.inner(block)
        if begin >= end:
            return
        offset = block.addr - range_.base
        pool.blocks.remove(block)
        for size, addr, before in ((begin - offset, block.addr, True), (offset + block.size - end, range_.base + end, False)):
            if size == 0:
                continue
            piece = Block(block.stream, size, pool, addr, range_, block.age)
            if before:
                piece.prev, piece.next = block.prev, block
                if block.prev is not None:
                    block.prev.next = piece
                block.prev = piece
            else:
                piece.prev, piece.next = block, block.next
                if block.next is not None:
                    block.next.prev = piece
                block.next = piece
            pool.insert(piece)
        block.addr, block.size, block.mapped = range_.base + begin, end - begin, False
        self.merge(block, block.prev)
        self.merge(block, block.next)
        if block.is_split():
            pool.unmapped.add(block)
        self.give_back(end - begin)

    # -- merging and releasing

    def merge(self, block, other):
        if not free_neighbour(other) or other.mapped != block.mapped:
            return 0
        (block.pool.blocks if other.mapped else block.pool.unmapped).remove(other)
        if block.prev is other:
            block.addr, block.prev = other.addr, other.prev
            if block.prev is not None:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
        block.size += other.size
        return other.size

    def release(self, block):
        block.pool.blocks.remove(block)
        self.give_back(block.size)

    def empty_cache(self):
        self.complete_all()
        for small in (False, True):
            pool = self.pool(small)
            blocks = pool.blocks.all()
            for block in blocks:
                if block.range is None and not block.is_split():
                    self.release(block)
            for block in blocks:
                if block.range is not None:
                    self.unmap(block)

    def release_available(self, pool, size, stream):
        if self.config.max_split == UNLIMITED:
            return False
        key, blocks = max(size, self.config.max_split), pool.blocks
        at = blocks.index(stream, key, -1, 0)
        block = blocks.get(at, stream)
        if block is not None and block.range is None:
            self.release(block)
            return True
        chosen, total = [], 0
        while total < key:
            at -= 1
            block = blocks.get(at, stream)
            if block is None or block.size < self.config.max_split:
                break
            if block.range is None:
                total += block.size
                chosen.append(block)
        for block in chosen:
            self.release(block)
        return total >= key

    def collect(self):
        threshold = int(self.config.gc * self.limit)
        if self.reserved <= threshold:
            return
        target, got, pool = self.reserved - threshold, 0, self.pool(False)
        unsplit = [b for b in pool.blocks.all() if not b.is_split()]
        ages, count, freed = sum(pool.calls - b.base for b in unsplit), len(unsplit), True
        while got < target and freed and count > 0:
            mean, freed = ages / count, False
            for block in pool.blocks.all():
                age = pool.calls - block.base
                if not block.is_split() and block.range is None and age >= mean:
                    freed, got, ages, count = True, got + block.size, ages - age, count - 1
                    self.release(block)

    # -- what a program does

    def cached(self, pool, size, stream):
        if self.collects():
            pool.calls += 1
        block = self.find(pool, size, stream)
        if block is not None:
            pool.blocks.remove(block)
        return block

    def malloc(self, size, stream, number=0):
        if self.events_ready:
            self.complete_all()
        rounded = self.config.round_size(size)
        pool = self.pool(rounded <= SMALL_SIZE, number)
        segment = self.config.segment_size(rounded)
        block = self.cached(pool, rounded, stream)
        if block is None:
            if self.collects():
                self.collect()
            block = self.from_driver(pool, rounded, segment, stream)
        if block is None and self.release_available(pool, rounded, stream):
            block = self.from_driver(pool, rounded, segment, stream)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self.from_driver(pool, rounded, segment, stream)
        if block is None:
            self.ooms += 1
            raise OutOfMemory
        return self.hand_out(block, rounded, size)

    def hand_out(self, block, rounded, size):
        rest, was_split = block.size - rounded, block.is_split()
        if block.pool.small or self.config.expandable:
            split = rest >= MIN_BLOCK
        else:
            split = rounded < self.config.max_split and rest > SMALL_SIZE
        if split:
            left = block
            block = Block(left.stream, rounded, left.pool, left.addr, left.range, left.age)
            block.prev, block.next = left.prev, left
            if left.prev is not None:
                left.prev.next = block
            left.prev, left.addr, left.size = block, left.addr + rounded, rest
            left.pool.insert(left)
            if block.range is None:
                self.inactive_split += -rounded if was_split else rest
        elif was_split and block.range is None:
            self.inactive_split -= block.size
        block.allocated, block.requested = True, size
        self.allocated += block.size
        self.active += block.size
        self.requested += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def record_stream(self, block, stream):
        if stream != block.stream:
            block.uses.add(stream)

    def free(self, block, later=False):
        block.allocated = False
        self.allocated -= block.size
        if not block.uses and not later:
            self.really_free(block)
            return 0
        self.tickets += 1
        block.pending, block.uses, block.ticket = True, set(), self.tickets
        self.pending.append(block)
        return block.ticket

    def complete(self, block, ticket):
        if block.pending and block.ticket == ticket:
            self.pending.remove(block)
            block.pending = False
            self.really_free(block)

    def complete_all(self):
        while self.pending:
            self.complete(self.pending[0], self.pending[0].ticket)

    def really_free(self, block):
        size = block.size
        change = -self.merge(block, block.prev) - self.merge(block, block.next)
        block.pool.insert(block)
        if block.is_split():
            change += block.size
        if block.range is None:
            self.inactive_split += change
        self.active -= size
        self.requested -= block.requested

    def releasable(self):
        total = 0
        for small in (True, False):
            for block in self.pool(small).blocks.all():
                if block.range is not None:
                    begin, end = block.range.inner(block)
                    total += max(0, end - begin)
                elif not block.is_split():
                    total += block.size
        return total

    def largest_free(self):
        return max((b.size for pool in self.pools.values() for b in pool.blocks.all()), default=0)

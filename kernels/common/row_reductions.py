# mypy: ignore-errors
# Triton's functions have no Python types.
"""Reduces rows and writes what becomes of their elements: the device code that row kernels share.

`reduce_rows` reads each row of x (M, N), reduces it and writes y (M, N). Arithmetic is fp32. A program takes BLOCK_M
whole rows, which stay in registers, or one row in blocks of BLOCK_N columns, of which all but the last are read twice.

A kernel gives six functions of its own. Tuples hold one tensor for each scale (gain, bias) or each chunk of columns.

- WHOLE(values, masks, edge, edge_mask, eps, N_COLS, RAGGED) -> values, edge, factor: reduces whole rows. values, masks:
  (rows, columns) a chunk. edge: (rows, 32), the columns that no vector covers; only where RAGGED. factor: (rows, 1).
- FIRST(x_tile, FULL, BLOCK_N, LANE) -> state: reads the FULL blocks of a row for the first time (`load_block`). state:
  a tuple of (1, BLOCK_N / LANE). LANE: neighbours that a thread holds.
- COMBINE(state, last, FULL, LANE) -> partial: reduces the state and the last block (1, BLOCK_N) to (1,). FULL may be 0;
  the state is then ().
- FINISH(partial, state, last, last_mask, edge, edge_mask, eps, N_COLS, FULL, LANE, RAGGED) -> last, edge, centre,
  factor: adds the edge, here a vector, and returns what AGAIN and EPILOGUE take. factor: (1, 1).
- AGAIN(x, centre) -> values: makes of a block that is read again what FINISH made of the last one.
- EPILOGUE(values, factor, scales) -> y.

FILL: what elements beyond a row count as.

Ragged rows start at any element. Loads of 16 bytes need aligned addresses, so the columns before the first vector and
after the last are an edge, read element by element. A gain at the same columns is aligned in one of its shifted copies.
"""

from __future__ import annotations

from ledger.kernel import import_triton

triton, tl = import_triton()


@triton.jit
def wait_for_previous_kernel(PDL: tl.constexpr):
    if PDL:
        # The next kernel's blocks may be placed now; this one's wait until all before it is written.
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def sum_lanes(values, LANE: tl.constexpr):
    # A thread holds LANE neighbours. Adding them first needs no exchange and leaves registers for loads in flight.
    return tl.sum(lanes(values, LANE), axis=2)


@triton.jit
def lanes(values, LANE: tl.constexpr):
    return tl.reshape(values, (values.shape[0], values.shape[1] // LANE, LANE))


@triton.jit
def store_streaming(pointers, y, mask):
    tl.store(pointers, y.to(pointers.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def load_block(x_tile, block, BLOCK_N: tl.constexpr, FILL: tl.constexpr):
    # The first of two reads. A mask that the compiler knows to be true costs nothing.
    whole = tl.arange(0, BLOCK_N)[None, :] >= 0
    x = tl.load(x_tile + block * BLOCK_N, mask=whole, other=FILL, eviction_policy="evict_last")
    return x.to(tl.float32)


@triton.jit
def unchanged(x, centre):
    # AGAIN of kernels that write x itself, scaled.
    return x


@triton.jit
def _advance(pointers, first, cols, SHARED: tl.constexpr):
    # Several scales share their offsets; one alone needs fewer instructions with its pointer moved first.
    return pointers + (first + cols) if SHARED else pointers + first + cols


@triton.jit
def _load_scales(scale_ptrs, first, cols, mask, BYPASS_L1: tl.constexpr):
    scales = ()
    for i in tl.static_range(len(scale_ptrs)):
        pointers = _advance(scale_ptrs[i], first, cols, len(scale_ptrs) > 1)
        # Where a row fills the L1 until it is read again, gain and bias must not evict it.
        if BYPASS_L1:
            values = tl.load(pointers, mask=mask, other=0.0, cache_modifier=".cg")
        else:
            values = tl.load(pointers, mask=mask, other=0.0, eviction_policy="evict_last")
        scales = scales + (values.to(tl.float32),)  # noqa: RUF005
    return scales


@triton.jit
def _load_edge_scales(scale_ptrs, edge_cols, edge_mask):
    scales = ()
    for i in tl.static_range(len(scale_ptrs)):
        values = tl.load(scale_ptrs[i] + edge_cols, mask=edge_mask, other=0.0)
        scales = scales + (values.to(tl.float32),)  # noqa: RUF005
    return scales


@triton.jit
def shifted_copies(
    scale_ptrs, copies_ptr, N_COLS: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    wait_for_previous_kernel(PDL)
    head = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scales = ()
    for i in tl.static_range(len(scale_ptrs)):
        values = tl.load(scale_ptrs[i] + head + cols, mask=head + cols < N_COLS, other=0.0)
        scales = scales + (values,)  # noqa: RUF005
    for i in tl.static_range(len(scale_ptrs)):
        tl.store(copies_ptr + (i * tl.num_programs(0) + head) * STEP + cols, scales[i], mask=cols < STEP)


@triton.jit
def _group(number: tl.constexpr, shift, n_rows, N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, ROWS: tl.constexpr):
    # Where the rows of a group start, counted from where the tile does, and which of them there are.
    rows = number * ROWS + tl.arange(0, ROWS)[:, None]
    return shift + rows * N_COLS, rows < n_rows - tl.program_id(0) * BLOCK_M


@triton.jit
def _chunk(
    starts, row_mask, cols, chunk: tl.constexpr, N_COLS: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr
):
    # The offsets of a chunk of columns of some rows, its mask, and the columns before the first vector of a row.
    WIDTH: tl.constexpr = cols.shape[1]
    head = 0
    if RAGGED:
        # Vectors lie at multiples of 16 bytes, whatever the row.
        aligned = (starts + VECTOR - 1) // VECTOR * VECTOR
        head = (aligned - starts).to(tl.int32)
        mask = row_mask & ((chunk * WIDTH + cols) // VECTOR < (N_COLS - head) // VECTOR)
        offsets = aligned + (chunk * WIDTH + cols)
    else:
        mask = row_mask & ((chunk * WIDTH + cols < N_COLS) if (chunk + 1) * WIDTH > N_COLS else (cols >= 0))
        offsets = starts + (chunk * WIDTH + cols)
    return offsets, mask, head


@triton.jit
def _edge(starts, row_mask, N_COLS: tl.constexpr, VECTOR: tl.constexpr):
    # The columns that no vector covers, before the first and after the last: a lane of the row's warp for each.
    head = ((starts + VECTOR - 1) // VECTOR * VECTOR - starts).to(tl.int32)
    lane = tl.arange(0, 32)[None, :]
    cols = tl.where(lane < VECTOR, lane, head + (N_COLS - head) // VECTOR * VECTOR + lane - VECTOR)
    return cols, row_mask & tl.where(lane < VECTOR, lane < head, cols < N_COLS)


@triton.jit
def _whole_rows(
    x_ptr, scale_ptrs, y_ptr, n_rows, eps, WHOLE: tl.constexpr, EPILOGUE: tl.constexpr, FILL: tl.constexpr,
    N_COLS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr,
    SCALE_STEP: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    # A chunk of columns is one load of a warp, a group of rows one of all warps: no warp waits for another.
    WIDTH: tl.constexpr = BLOCK_N if BLOCK_N < 32 * VECTOR else 32 * VECTOR
    CHUNKS: tl.constexpr = (N_COLS + WIDTH - 1) // WIDTH
    AT_ONCE: tl.constexpr = 32 * VECTOR * WARPS // WIDTH if RAGGED or N_COLS % VECTOR == 0 else BLOCK_M
    ROWS: tl.constexpr = BLOCK_M if BLOCK_M < AT_ONCE else AT_ONCE
    GROUPS: tl.constexpr = BLOCK_M // ROWS
    cols = tl.arange(0, WIDTH)[None, :]
    # Within a tile 32 bits are enough for an offset; ragged rows count from the tensor's start, to find their vectors.
    origin = tl.program_id(0).to(tl.int64) * (BLOCK_M * N_COLS)
    shift = origin if RAGGED else 0
    x_tile = x_ptr if RAGGED else x_ptr + origin
    y_tile = y_ptr if RAGGED else y_ptr + origin
    held = ()
    edges = ()
    for group in tl.static_range(GROUPS):
        starts, row_mask = _group(group, shift, n_rows, N_COLS, BLOCK_M, ROWS)
        if RAGGED:
            # Before the vectors: the compiler then adds up in the layout of the vectors, not in that of the edges.
            edge_cols, edge_mask = _edge(starts, row_mask, N_COLS, VECTOR)
            edge = tl.load(x_tile + starts + edge_cols, mask=edge_mask, other=FILL)
            edges = edges + (edge.to(tl.float32),)  # noqa: RUF005
        for chunk in tl.static_range(CHUNKS):
            offsets, mask, head = _chunk(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            x = tl.load(x_tile + offsets, mask=mask, other=FILL)
            held = held + (x.to(tl.float32),)  # noqa: RUF005
    # All groups share what is read once. Ragged rows read the copies for their first vectors, each when it is due.
    shared = ()
    for chunk in tl.static_range(0 if RAGGED else CHUNKS):
        every = tl.broadcast_to(chunk * WIDTH + cols, (ROWS, WIDTH))
        shared = shared + (_load_scales(scale_ptrs, 0, every, every < N_COLS, False),)  # noqa: RUF005
    for group in tl.static_range(GROUPS):
        starts, row_mask = _group(group, shift, n_rows, N_COLS, BLOCK_M, ROWS)
        edge = 0
        edge_mask = 0
        if RAGGED:
            edge_cols, edge_mask = _edge(starts, row_mask, N_COLS, VECTOR)
            edge = edges[group]
            edge_scales = _load_edge_scales(scale_ptrs, edge_cols, edge_mask)
        values = ()
        masks = ()
        for chunk in tl.static_range(CHUNKS):
            offsets, mask, head = _chunk(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            values = values + (held[group * CHUNKS + chunk],)  # noqa: RUF005
            masks = masks + (mask,)  # noqa: RUF005
        values, edge, factor = WHOLE(values, masks, edge, edge_mask, eps, N_COLS, RAGGED)
        if RAGGED:
            store_streaming(y_tile + starts + edge_cols, EPILOGUE(edge, factor, edge_scales), edge_mask)
        for chunk in tl.static_range(CHUNKS):
            offsets, mask, head = _chunk(starts, row_mask, cols, chunk, N_COLS, VECTOR, RAGGED)
            if RAGGED:
                scales = _load_scales(scale_ptrs, head * SCALE_STEP, chunk * WIDTH + cols, mask, False)
            else:
                scales = shared[chunk]
            store_streaming(y_tile + offsets, EPILOGUE(values[chunk], factor, scales), mask)


@triton.jit
def _one_row(
    x_ptr, scale_ptrs, y_ptr, eps, FIRST: tl.constexpr, COMBINE: tl.constexpr, FINISH: tl.constexpr,
    AGAIN: tl.constexpr, EPILOGUE: tl.constexpr, FILL: tl.constexpr, N_COLS: tl.constexpr, BLOCK_N: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr,
    PIPELINED: tl.constexpr,
):  # fmt: skip
    # Blocks that are read twice; the last block of a row stays in registers.
    FULL: tl.constexpr = (N_COLS - 2 * VECTOR) // BLOCK_N if RAGGED else (N_COLS + BLOCK_N - 1) // BLOCK_N - 1
    LANE: tl.constexpr = VECTOR if BLOCK_N >= VECTOR else BLOCK_N
    row = tl.program_id(0).to(tl.int64) * N_COLS
    cols = tl.arange(0, BLOCK_N)[None, :]
    # Columns before the first one at a multiple of 16 bytes, and those of the last block.
    head = 0
    left = N_COLS - FULL * BLOCK_N
    if RAGGED:
        start = row
        row = (start + VECTOR - 1) // VECTOR * VECTOR
        head = (row - start).to(tl.int32)
        left = tl.minimum((N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N, BLOCK_N)
    # Masks that the compiler knows to be true cost nothing; one that changes between vectors only keeps them whole.
    whole = cols >= 0
    last_mask = (cols < left) if N_COLS % BLOCK_N else (cols >= 0)
    if RAGGED:
        last_mask = cols // VECTOR < left // VECTOR
    x_tile = x_ptr + row + cols
    y_tile = y_ptr + row + cols
    scale_tiles = ()
    for i in tl.static_range(len(scale_ptrs)):
        first = _advance(scale_ptrs[i], head * SCALE_STEP, cols, len(scale_ptrs) > 1)
        scale_tiles = scale_tiles + (first,)  # noqa: RUF005
    state = ()
    if FULL > 0:
        state = FIRST(x_tile, FULL, BLOCK_N, LANE)
    last = tl.load(x_tile + FULL * BLOCK_N, mask=last_mask, other=FILL, eviction_policy="evict_first").to(tl.float32)
    scales = _load_scales(scale_tiles, FULL * BLOCK_N, 0, last_mask, BYPASS_L1)
    partial = COMBINE(state, last, FULL, LANE)
    edge = 0
    edge_mask = 0
    if RAGGED:
        # The columns that no vector covers: before the first, after the last.
        lane = tl.arange(0, 4 * VECTOR)
        edge_cols = tl.where(lane < VECTOR, lane, head + FULL * BLOCK_N + left + lane - VECTOR)
        edge_mask = tl.where(lane < VECTOR, lane < head, edge_cols < N_COLS)
        edge = tl.load(x_ptr + start + edge_cols, mask=edge_mask, other=FILL).to(tl.float32)
        edge_scales = _load_edge_scales(scale_ptrs, edge_cols, edge_mask)
    last, edge, centre, factor = FINISH(
        partial, state, last, last_mask, edge, edge_mask, eps, N_COLS, FULL, LANE, RAGGED
    )
    if PIPELINED and FULL > 0:
        x_next = tl.load(x_tile + (FULL - 1) * BLOCK_N, mask=whole, other=FILL, eviction_policy="evict_first")
        scales_next = _load_scales(scale_tiles, (FULL - 1) * BLOCK_N, 0, whole, BYPASS_L1)
    store_streaming(y_tile + FULL * BLOCK_N, EPILOGUE(last, factor, scales), last_mask)
    if RAGGED:
        store_streaming(y_ptr + start + edge_cols, EPILOGUE(edge, tl.sum(factor), edge_scales), edge_mask)
    # Backwards: what was read last is still in the nearest cache.
    if FULL > 0:
        for block in tl.range(FULL - 1, -1, -1):
            if PIPELINED:
                x_again = x_next.to(tl.float32)
                scales = scales_next
                more = whole & (block > 0)
                x_next = tl.load(x_tile + (block - 1) * BLOCK_N, mask=more, other=FILL, eviction_policy="evict_first")
                scales_next = _load_scales(scale_tiles, (block - 1) * BLOCK_N, 0, more, BYPASS_L1)
            else:
                x_again = tl.load(x_tile + block * BLOCK_N, mask=whole, other=FILL, eviction_policy="evict_first")
                x_again = x_again.to(tl.float32)
                scales = _load_scales(scale_tiles, block * BLOCK_N, 0, whole, BYPASS_L1)
            store_streaming(y_tile + block * BLOCK_N, EPILOGUE(AGAIN(x_again, centre), factor, scales), whole)


@triton.jit
def reduce_rows(
    x_ptr, scale_ptrs, y_ptr, n_rows, eps, WHOLE: tl.constexpr, FIRST: tl.constexpr, COMBINE: tl.constexpr,
    FINISH: tl.constexpr, AGAIN: tl.constexpr, EPILOGUE: tl.constexpr, FILL: tl.constexpr, N_COLS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr,
    SCALE_STEP: tl.constexpr, BYPASS_L1: tl.constexpr, PIPELINED: tl.constexpr, WARPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    wait_for_previous_kernel(PDL)
    if BLOCK_M > 1:
        _whole_rows(
            x_ptr, scale_ptrs, y_ptr, n_rows, eps, WHOLE, EPILOGUE, FILL, N_COLS, BLOCK_M, BLOCK_N, VECTOR, RAGGED,
            SCALE_STEP, WARPS,
        )  # fmt: skip
    else:
        _one_row(
            x_ptr, scale_ptrs, y_ptr, eps, FIRST, COMBINE, FINISH, AGAIN, EPILOGUE, FILL, N_COLS, BLOCK_N, VECTOR,
            RAGGED, SCALE_STEP, BYPASS_L1, PIPELINED,
        )  # fmt: skip

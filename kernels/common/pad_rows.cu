// Copies up to two matrices so that their rows begin at multiples of 16 bytes, as the TMA requires. A thread writes
// 16 bytes at a time and reads the one or two aligned 16 bytes in which they lie. Bytes behind a row are left as they are.
#include "hopper.cuh"

constexpr int THREADS = 256, UNROLLED = 4;

DEVICE uint4 bytes_at(const unsigned char* from, int count) {
    u32 words[4] = {0, 0, 0, 0};
    UNROLL for (int i = 0; i < 16; ++i) if (i < count) words[i / 4] |= (u32)from[i] << i % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}
// The 16 bytes that begin `skipped` bytes into two vectors.
DEVICE uint4 shifted(uint4 first, uint4 second, u32 skipped) {
    u32 w[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    UNROLL for (int i = 0; i < 6; ++i) w[i] = skipped & 8 ? w[i + 2] : w[i];
    UNROLL for (int i = 0; i < 5; ++i) w[i] = skipped & 4 ? w[i + 1] : w[i];
    const u32 bits = skipped % 4 * 8;
    UNROLL for (int i = 0; i < 4; ++i) w[i] = __funnelshift_r(w[i], w[i + 1], bits);
    return make_uint4(w[0], w[1], w[2], w[3]);
}
// `begin` and `end` bound the matrix: no vector that reaches beyond them is read.
DEVICE uint4 read(const unsigned char* from, int count, u64 begin, u64 end) {
    const u64 at = (u64)from, aligned = at & ~15ull;
    const u32 skipped = (u32)at & 15;
    const bool two = skipped + count > 16;
    if (aligned < begin || aligned + (two ? 32 : 16) > end) return bytes_at(from, count);
    const uint4 first = *(const uint4*)aligned;
    const uint4 second = two ? *(const uint4*)(aligned + 16) : first;
    return shifted(first, second, skipped);
}

// rows, row_bytes: of a matrix. pitch: from row to row of its copy, in vectors of 16 bytes. ctas: that copy it.
DEVICE void copy(const unsigned char* from, uint4* to, int rows, int row_bytes, int pitch, int cta) {
    const u32 in_row = (row_bytes + 15) / 16, vectors = in_row * rows;
    const u64 begin = (u64)from, end = begin + (u64)rows * row_bytes;
    uint4 read_ahead[UNROLLED];
    i64 place[UNROLLED];
    UNROLL for (int i = 0; i < UNROLLED; ++i) {
        const u32 vector = (cta * UNROLLED + i) * THREADS + threadIdx.x;
        const u32 row = vector / in_row, column = vector % in_row;
        place[i] = vector < vectors ? (i64)row * pitch + column : -1;
        if (vector < vectors)
            read_ahead[i] = read(from + (i64)row * row_bytes + 16 * column, min(16, row_bytes - 16 * (int)column), begin, end);
    }
    UNROLL for (int i = 0; i < UNROLLED; ++i) if (place[i] >= 0) to[place[i]] = read_ahead[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) pad_rows(
    const unsigned char* first, uint4* first_to, int first_rows, int first_bytes, int first_pitch, int first_ctas,
    const unsigned char* second, uint4* second_to, int second_rows, int second_bytes, int second_pitch)
{
    launch_dependents();
    // The launch before this one may write the matrices, and may still read the copies of the call before.
    wait_for_launch_before();
    const int cta = blockIdx.x;
    if (cta < first_ctas) copy(first, first_to, first_rows, first_bytes, first_pitch, cta);
    else copy(second, second_to, second_rows, second_bytes, second_pitch, cta - first_ctas);
}

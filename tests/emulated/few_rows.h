// Behind gemm_few_rows.cu: the functions that tests/kernels/test_few_rows.py put in place of its assembly, and a
// program that reads A, B and the bias from a file and writes C to another. A and B begin SHIFT elements late, and a
// read outside of the vectors in which they lie ends the program. Arguments: the files, M, N, K, bytes of shared memory.
int main(int, char** words) {
    const int m = atoi(words[3]), n = atoi(words[4]), k = atoi(words[5]), bytes = atoi(words[6]);
    auto aligned = [](size_t count) {
        u16* const all = (u16*)aligned_alloc(16, (2 * (count + 16) + 15) / 16 * 16);
        std::fill(all, all + count + 16, (u16)0x7e00);
        return all;
    };
    const size_t sizes[3] = {(size_t)m * k, (size_t)k * n, (size_t)n};
    u16* given[3];
    FILE* file = fopen(words[1], "rb");
    for (int i = 0; i < 3; ++i) {
        u16* const all = aligned(sizes[i]);
        given[i] = all + (i < 2 ? SHIFT : 0);
        if (fread(given[i], 2, sizes[i], file) != sizes[i]) return 3;
        readable.push_back({(const char*)all, (const char*)(given[i] + sizes[i])});
    }
    fclose(file);
    u16* const c = aligned((size_t)m * n);
    launch((n + BLOCK_N - 1) / BLOCK_N * SPLIT, SPLIT, THREADS, bytes, [&] {
        gemm_few_rows(given[0], given[1],
#if BIAS_RELU
            given[2],
#endif
            c, m, n, k);
    });
    // Nothing is written behind the result.
    for (int i = 0; i < 16; ++i) if (c[(size_t)m * n + i] != 0x7e00) return 4;
    file = fopen(words[2], "wb");
    fwrite(c, 2, (size_t)m * n, file);
    fclose(file);
    return 0;
}

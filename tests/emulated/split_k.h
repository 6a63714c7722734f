// Behind gemm_split_k.cu and gemm_split_k_sum.cu: a program that reads A, B and the bias from a file and writes C to
// another. Arguments: the files, M, N, K, CTAs of the product, their bytes of shared memory, rows of a tile.
int main(int, char** words) {
    const int m = atoi(words[3]), n = atoi(words[4]), k = atoi(words[5]), ctas = atoi(words[6]), bytes = atoi(words[7]);
    const int tile_rows = atoi(words[8]);
    constexpr int AROUND = 64;
    auto guarded = [](size_t count) {
        u16* const all = (u16*)aligned_alloc(128, (2 * (count + 2 * AROUND) + 127) / 128 * 128);
        std::fill(all, all + count + 2 * AROUND, (u16)0x7e00);
        return all + AROUND;
    };
    const size_t sizes[3] = {(size_t)m * k, (size_t)k * n, (size_t)n}, size = (size_t)m * n;
    u16* given[3];
    FILE* file = fopen(words[1], "rb");
    for (int i = 0; i < 3; ++i) {
        given[i] = guarded(sizes[i]);
        if (fread(given[i], 2, sizes[i], file) != sizes[i]) return 3;
        readable.push_back({(const char*)given[i], (const char*)(given[i] + sizes[i])});
    }
    fclose(file);
    const TensorMap of_a{given[0], m, k, k, tile_rows, true}, of_b{given[1], k, n, n, 64, true};
    float* const workspace = (float*)guarded(2 * PARTS * size);
    std::fill(workspace, workspace + PARTS * size, __uint_as_float(0x7fc00000));
    char *const from = (char*)workspace, *const to = (char*)(workspace + PARTS * size);
    writable.push_back({from, to, std::vector<char>(PARTS * size)});
    launch(ctas, 1, PRODUCT_THREADS, bytes, [&] {
        product::gemm_split_k(of_a, of_b, workspace, m, n, k, tile_rows, PARTS);
    });
    writable.clear();
    readable.push_back({from, to});
    u16* const c = guarded(size);
    const int fours = size / 4;
    launch((fours + THREADS - 1) / THREADS, 1, THREADS, 16, [&] {
        sum::gemm_split_k_sum((const float4*)workspace,
#if BIAS_RELU
            (const uint2*)given[2],
#endif
            (uint2*)c, fours, n / 4);
    });
    // Nothing is written around the result.
    for (int i = 1; i <= AROUND; ++i) if (c[-i] != 0x7e00 || c[size - 1 + i] != 0x7e00) return 4;
    file = fopen(words[2], "wb");
    fwrite(c, 2, size, file);
    fclose(file);
    return 0;
}

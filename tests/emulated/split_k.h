// Behind gemm_split_k.cu and gemm_split_k_sum.cu: a program that reads A, B and the bias from a file and writes C to
// another. Arguments: the files, M, N, K, CTAs of the product, their bytes of shared memory, rows of a tile, the scale.
#if INT8
using Output = float;
constexpr Output AROUND_RESULT = 12345.f;
#else
using Output = u16;
constexpr Output AROUND_RESULT = 0x7e00;
#endif
constexpr int AROUND = 128;
template <class T> static T* guarded(size_t count, T guard) {
    T* const all = (T*)aligned_alloc(128, (sizeof(T) * (count + 2 * AROUND) + 127) / 128 * 128);
    std::fill(all, all + count + 2 * AROUND, guard);
    return all + AROUND;
}
int main(int, char** words) {
    const int m = atoi(words[3]), n = atoi(words[4]), k = atoi(words[5]), ctas = atoi(words[6]), bytes = atoi(words[7]);
    const int tile_rows = atoi(words[8]);
    const size_t sizes[3] = {(size_t)m * k, (size_t)k * n, (size_t)n}, size = (size_t)m * n;
    Element* given[3];
    FILE* file = fopen(words[1], "rb");
    for (int i = 0; i < 3; ++i) {
        given[i] = guarded(sizes[i], AROUND_INPUTS);
        if (fread(given[i], sizeof(Element), sizes[i], file) != sizes[i]) return 3;
        readable.push_back({(const char*)given[i], (const char*)(given[i] + sizes[i])});
    }
    fclose(file);
    const TensorMap of_a{given[0], m, k, k, tile_rows, true};
    TensorMap of_b{given[1], k, n, n, 64, true};
    if (product::B_ROWS) of_b = {given[1], n, k, k, BLOCK_N, true};
    float* const workspace = guarded(PARTS * size, __uint_as_float(0x7fc00000));
    char *const from = (char*)workspace, *const to = (char*)(workspace + PARTS * size);
    writable.push_back({from, to, std::vector<char>(PARTS * size)});
    launch(ctas, 1, PRODUCT_THREADS, bytes, [&] {
        product::gemm_split_k(of_a, of_b, (product::Sum*)workspace, m, n, k, tile_rows, PARTS);
    });
    writable.clear();
    readable.push_back({from, to});
    Output* const c = guarded(size, AROUND_RESULT);
    const int fours = size / 4;
    launch((fours + THREADS - 1) / THREADS, 1, THREADS, 16, [&] {
        sum::gemm_split_k_sum((const sum::Four*)workspace,
#if BIAS_RELU
            (const uint2*)given[2],
#endif
            (sum::Result*)c, fours, n / 4
#if SCALED
            , atof(words[9])
#endif
        );
    });
    // Nothing is written around the result.
    for (int i = 1; i <= AROUND; ++i) if (c[-i] != AROUND_RESULT || c[size - 1 + i] != AROUND_RESULT) return 4;
    file = fopen(words[2], "wb");
    fwrite(c, sizeof(Output), size, file);
    fclose(file);
    return 0;
}

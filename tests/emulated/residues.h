// Behind gemm_residues.cu and gather_rows.cu: a program that reads A, B and the bias from a file and writes C to another.
// Arguments: the files, M, N, K, bytes of shared memory, steps of a class, rows of a tile, then of each class the first
// element, rows, columns and pitch of its tensor map.
int main(int, char** words) {
    const int m = atoi(words[3]), n = atoi(words[4]), k = atoi(words[5]), bytes = atoi(words[6]), steps = atoi(words[7]);
    const int tile_rows = atoi(words[8]);
    auto aligned = [](size_t count) {
        u16* const all = (u16*)aligned_alloc(128, (2 * (count + 64) + 127) / 128 * 128);
        std::fill(all, all + count + 64, (u16)0x7e00);
        return all;
    };
    const size_t sizes[3] = {(size_t)m * k, (size_t)k * n, (size_t)n};
    u16* given[3];
    FILE* file = fopen(words[1], "rb");
    for (int i = 0; i < 3; ++i) {
        given[i] = aligned(sizes[i]);
        if (fread(given[i], 2, sizes[i], file) != sizes[i]) return 3;
        readable.push_back({(const char*)given[i], (const char*)(given[i] + sizes[i])});
    }
    fclose(file);
    TensorMap of_a{given[0], m, k, k, tile_rows};
    if (GATHERED) {
        const size_t size = (size_t)m * CLASSES * steps * 64;
        u16* const columns = aligned(size);
        launch((size / 8 + 255) / 256, 1, 256, 16, [&] {
            gather::gather_rows(given[0], (uint4*)columns, m, k, steps * 64);
        });
        if (columns[size] != 0x7e00) return 4;
        readable.push_back({(const char*)columns, (const char*)(columns + size)});
        of_a = {columns, m, CLASSES * steps * 64, CLASSES * steps * 64, tile_rows};
    }
    Maps of_b;
    for (int i = 0; i < CLASSES; ++i) {
        const char* const* word = words + 9 + 4 * i;
        of_b.of[i] = {given[1] + atoi(word[0]), atoi(word[1]), atoi(word[2]), atoi(word[3]), 64};
    }
    u16* const c = aligned((size_t)m * n);
    launch((n + TILE - 1) / TILE * ((m + tile_rows - 1) / tile_rows) * SPLIT, SPLIT, THREADS, bytes, [&] {
        gemm_residues(of_a, of_b,
#if BIAS_RELU
            given[2],
#endif
            c, m, n, steps, tile_rows);
    });
    // Nothing is written behind the result.
    for (int i = 0; i < 16; ++i) if (c[(size_t)m * n + i] != 0x7e00) return 4;
    file = fopen(words[2], "wb");
    fwrite(c, 2, (size_t)m * n, file);
    fclose(file);
    return 0;
}

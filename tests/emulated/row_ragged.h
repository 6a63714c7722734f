// Behind row_ragged.cu: a program that reads x and the scales from a file and writes y to another. A read outside of
// them ends the program, as does a second write of a byte. Arguments: the files, rows, CTAs, bytes of shared memory.
int main(int, char** words) {
    const int m = atoi(words[3]), ctas = atoi(words[4]), bytes = atoi(words[5]);
    const size_t sizes[3] = {(size_t)m * N_COLS, N_COLS, N_COLS};
    uint4* given[3];
    FILE* file = fopen(words[1], "rb");
    for (int i = 0; i < (OP == 1 ? 1 : OP == 0 ? 2 : 3); ++i) {
        given[i] = (uint4*)aligned_alloc(16, (sizes[i] * ELEMENT + 15) / 16 * 16);
        if (fread(given[i], ELEMENT, sizes[i], file) != sizes[i]) return 3;
        readable.push_back({(const char*)given[i], (const char*)given[i] + sizes[i] * ELEMENT});
    }
    fclose(file);
    uint4* const y = (uint4*)aligned_alloc(16, (sizes[0] * ELEMENT + 15) / 16 * 16);
    result = (char*)y;
    written = std::vector<char>(sizes[0] * ELEMENT);
    launch(ctas, CLUSTER, THREADS, bytes, [&] {
        row_ragged_kernel(given[0],
#if OP != 1
            given[1],
#endif
#if OP == 2
            given[2],
#endif
            y, m, 1e-5f);
    });
    for (char one : written) if (!one) return 4;
    file = fopen(words[2], "wb");
    fwrite(y, ELEMENT, sizes[0], file);
    fclose(file);
    return 0;
}

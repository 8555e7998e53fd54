/* The tiny hybrid of the golden files, and a drafter for it. */
#ifndef TESTS_ENGINE_HYBRID_FILES_H
#define TESTS_ENGINE_HYBRID_FILES_H

#define HYBRID_FOLDER "tests/golden/qwen35-tiny"

/* Writes a drafter that knows nothing into the folder: two layers of random weights, one of them with a window, fed
 * from a recurrent and from an attention layer; block 8. */
void hybrid_write_drafter(const char *folder);

#endif

/* A matrix of weights b [INNER][OUTPUTS]: float32, or, where WEIGHT_BITS is 1, +-1 as bits packed in rows of OUTPUT_WORDS.
 */
#if WEIGHT_BITS
#define WEIGHT uint
#define WEIGHT_AT(b, k, output) \
    ((b)[(k) * OUTPUT_WORDS + (output) / 32] >> (output) % 32 & 1u ? 1.0f : -1.0f)
#else
#define WEIGHT float
#define WEIGHT_AT(b, k, output) ((b)[(k) * OUTPUTS + (output)])
#endif

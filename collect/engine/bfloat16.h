/* bfloat16: the upper half of a float32. */
#ifndef COLLECT_ENGINE_BFLOAT16_H
#define COLLECT_ENGINE_BFLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float bfloat16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t bfloat16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded >> 16);
}

#endif

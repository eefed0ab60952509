// Elements of tensors and matrices: f32, f16 and bf16, all computed with as f32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

enum class Element { F32, F16, BF16 };

inline size_t bytes_of(Element element) { return element == Element::F32 ? 4 : 2; }

inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t fraction = half & 1023;
    if (exponent == 31) {
        return from_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent) {
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    }
    const float value = (float)fraction * 5.9604644775390625e-8f;  // a multiple of 2^-24
    return sign ? -value : value;
}

// To nearest, ties to even.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = to_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) {
        return 0x7fff;
    }
    if (magnitude >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude < 0x38800000u) {
        return (uint16_t)(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000u) >> 13);
}

inline uint16_t float_to_bfloat(float value) {
    const uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000u) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float load(Element element, const void *at, int64_t index) {
    if (element == Element::F32) {
        return ((const float *)at)[index];
    }
    const uint16_t bits = ((const uint16_t *)at)[index];
    return element == Element::F16 ? half_to_float(bits) : from_bits((uint32_t)bits << 16);
}

inline void store(Element element, void *at, int64_t index, float value) {
    if (element == Element::F32) {
        ((float *)at)[index] = value;
    } else {
        ((uint16_t *)at)[index] = element == Element::F16 ? float_to_half(value) : float_to_bfloat(value);
    }
}

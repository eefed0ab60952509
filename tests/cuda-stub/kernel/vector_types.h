// CUDA's short vectors, with CUDA's alignment.
#pragma once

#define CD_VECTOR2(name, type, alignment)                                                       \
    struct __attribute__((aligned(alignment))) name { type x, y; };                             \
    static inline name make_##name(type x, type y) { return name{x, y}; }
#define CD_VECTOR3(name, type)                                                                  \
    struct name { type x, y, z; };                                                              \
    static inline name make_##name(type x, type y, type z) { return name{x, y, z}; }
#define CD_VECTOR4(name, type, alignment)                                                       \
    struct __attribute__((aligned(alignment))) name { type x, y, z, w; };                       \
    static inline name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }

typedef unsigned char cd_uchar;
typedef unsigned short cd_ushort;
typedef unsigned int cd_uint;
typedef long long cd_longlong;
typedef unsigned long long cd_ulonglong;

CD_VECTOR2(char2, signed char, 2)
CD_VECTOR2(uchar2, cd_uchar, 2)
CD_VECTOR2(short2, short, 4)
CD_VECTOR2(ushort2, cd_ushort, 4)
CD_VECTOR2(int2, int, 8)
CD_VECTOR2(uint2, cd_uint, 8)
CD_VECTOR2(float2, float, 8)
CD_VECTOR2(double2, double, 16)
CD_VECTOR2(longlong2, cd_longlong, 16)
CD_VECTOR2(ulonglong2, cd_ulonglong, 16)
CD_VECTOR3(uchar3, cd_uchar)
CD_VECTOR3(int3, int)
CD_VECTOR3(float3, float)
CD_VECTOR4(char4, signed char, 4)
CD_VECTOR4(uchar4, cd_uchar, 4)
CD_VECTOR4(short4, short, 8)
CD_VECTOR4(ushort4, cd_ushort, 8)
CD_VECTOR4(int4, int, 16)
CD_VECTOR4(uint4, cd_uint, 16)
CD_VECTOR4(float4, float, 16)

static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }

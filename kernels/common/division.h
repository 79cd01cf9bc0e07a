/* Division of float32, rounded correctly also where the device's own is not (EXACT_DIVISION 0): OpenCL asks for no more than
 * 2.5 ulp. There it is a division of integers, bit by bit.
 */
#if EXACT_DIVISION
#define QUOTIENT(a, b) ((a) / (b))
#else
#define QUOTIENT(a, b) quotient(a, b)
#define INFINITE 0x7f800000u

/* The fraction of a positive number, its leading one at bit 23, and its exponent, below 1 where the number is subnormal. */
DEVICE uint fraction(uint bits, int *exponent)
{
    uint digits = bits & 0x7fffffu;
    *exponent = (int)(bits >> 23);
    if (*exponent > 0)
        return digits | 0x800000u;
    for (*exponent = 1; digits < 0x800000u; digits <<= 1)
        --*exponent;
    return digits;
}

DEVICE float quotient(float a, float b)
{
    const uint a_bits = BITS_OF_FLOAT(a), b_bits = BITS_OF_FLOAT(b);
    const uint sign = (a_bits ^ b_bits) & 0x80000000u;
    const uint a_size = a_bits & 0x7fffffffu, b_size = b_bits & 0x7fffffffu;
    if (a_size > INFINITE || b_size > INFINITE || (a_size == b_size && (a_size == 0 || a_size == INFINITE)))
        return FLOAT_OF_BITS(0x7fc00000); /* NaN, 0 / 0, infinity / infinity */
    if (a_size == INFINITE || b_size == 0)
        return FLOAT_OF_BITS((int)(sign | INFINITE));
    if (b_size == INFINITE || a_size == 0)
        return FLOAT_OF_BITS((int)sign);

    int a_exponent, b_exponent;
    uint rest = fraction(a_size, &a_exponent);
    const uint divisor = fraction(b_size, &b_exponent);
    int exponent = a_exponent - b_exponent + 127;
    if (rest < divisor) {
        rest <<= 1;
        --exponent;
    }
    uint digits = 0; /* 24 of them, from the leading one on, and one more to round by */
    for (int i = 0; i < 25; ++i) {
        digits <<= 1;
        if (rest >= divisor) {
            rest -= divisor;
            digits |= 1u;
        }
        rest <<= 1;
    }
    uint inexact = rest != 0;
    if (exponent >= 255)
        return FLOAT_OF_BITS((int)(sign | INFINITE));
    uint before = 0; /* the exponent's bits, less the leading one, which adds itself */
    if (exponent > 0) {
        before = (uint)(exponent - 1) << 23;
    } else { /* subnormal: fewer digits */
        const int dropped = 1 - exponent < 25 ? 1 - exponent : 25;
        inexact |= (digits & ((1u << dropped) - 1u)) != 0;
        digits >>= dropped;
    }
    const uint half_up = digits & 1u & (inexact | digits >> 1);
    return FLOAT_OF_BITS((int)(sign | (before + (digits >> 1) + half_up)));
}
#endif

/* exp of float32 in rounded operations of a fixed order, off by less than 2 ulp: every device gives the same bits, which a
 * library's own exp does not. x = n ln(2) + r, and exp(x) = 2**n (1 + r + r * r * p(r)).
 */
/* 2**k, for -126 <= k <= 127. */
DEVICE float power_of_two(int k)
{
    return FLOAT_OF_BITS((k + 127) << 23);
}

DEVICE float exponential(float x)
{
    if (x != x)
        return x;
    x = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x; /* infinite, and 0 */
    const float scaled = x * 1.44269504f;
    const int n = (int)(scaled + (x < 0.0f ? -0.5f : 0.5f));
    float r = x - (float)n * 0.693359375f; /* ln(2) in two parts; the first product is exact */
    r = r - (float)n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float y = p * (r * r) + r + 1.0f;
    /* In two steps, neither beyond float32's exponents; only the second rounds, to a subnormal number. */
    const int half_n = n >> 1;
    return y * power_of_two(half_n) * power_of_two(n - half_n);
}

/* log of float32 numbers from 1 on in rounded operations of a fixed order, off by less than 2 ulp. x = 2**n (1 + r),
 * with 1 + r from sqrt(1/2) to sqrt(2), and log(x) = n ln(2) + r - r * r / 2 + r**3 p(r).
 */
DEVICE float logarithm(float x)
{
    const uint bits = BITS_OF_FLOAT(x);
    if (bits > 0x7f7fffffu)
        return x; /* NaN, infinity */
    float r = FLOAT_OF_BITS((int)((bits & 0x7fffffu) | 0x3f000000u));
    int n = (int)(bits >> 23) - 126;
    if (r < 0.70710678f) {
        r = r + r;
        --n;
    }
    r = r - 1.0f;
    float p = 7.0376836292e-2f;
    p = p * r + -1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r + -1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r + -1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r + -2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    const float square = r * r;
    const float y = p * r * square + (float)n * -2.12194440e-4f - 0.5f * square;
    return r + y + (float)n * 0.693359375f;
}

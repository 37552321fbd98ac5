#include "promql/promql_functions.h"
#include "promql/promql_range_functions.h"
#include "promql/promql_vector_functions.h"

#include <math.h>
#include <time.h>

#define MAP(name, expression)                                                                                \
    static double map_##name(double v, const double *args)                                                   \
    {                                                                                                        \
        (void)args;                                                                                          \
        return expression;                                                                                   \
    }
MAP(same, v)
MAP(pi, v - v + M_PI)
MAP(abs, fabs(v))
MAP(ceil, ceil(v))
MAP(floor, floor(v))
MAP(exp, exp(v))
MAP(sqrt, sqrt(v))
MAP(ln, log(v))
MAP(log2, log2(v))
MAP(log10, log10(v))
MAP(sgn, v<0 ? -1 : v> 0 ? 1 : v)
MAP(sin, sin(v))
MAP(cos, cos(v))
MAP(tan, tan(v))
MAP(asin, asin(v))
MAP(acos, acos(v))
MAP(atan, atan(v))
MAP(sinh, sinh(v))
MAP(cosh, cosh(v))
MAP(tanh, tanh(v))
MAP(asinh, asinh(v))
MAP(acosh, acosh(v))
MAP(atanh, atanh(v))
MAP(deg, v * 180 / M_PI)
MAP(rad, v *M_PI / 180)

static double larger(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

MAP(clamp, args[1] < args[0] ? absent() : larger(args[0], smaller(args[1], v)))
MAP(clamp_min, larger(args[0], v))
MAP(clamp_max, smaller(args[0], v))
MAP(round, floor(v *(1 / args[0]) + 0.5) / (1 / args[0]))

/* The parts of a time in UTC; Prometheus has no defined answer for NaN and times outside its calendar. */
#define DATE_MAP(name, part)                                                                                 \
    static double map_##name(double v, const double *args)                                                   \
    {                                                                                                        \
        struct tm date;                                                                                      \
        time_t t = fabs(v) < 1e12 ? (time_t)v : 0;                                                           \
        (void)args;                                                                                          \
        return fabs(v) < 1e12 && gmtime_r(&t, &date) ? (part) : NAN;                                         \
    }

static int days_in_month(int month, int year)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month] + (month == 1 && is_leap);
}

DATE_MAP(minute, date.tm_min)
DATE_MAP(hour, date.tm_hour)
DATE_MAP(day_of_month, date.tm_mday)
DATE_MAP(day_of_week, date.tm_wday)
DATE_MAP(day_of_year, date.tm_yday + 1)
DATE_MAP(month, date.tm_mon + 1)
DATE_MAP(year, date.tm_year + 1900)
DATE_MAP(days_in_month, days_in_month(date.tm_mon, date.tm_year + 1900))

#define MAPPED(name, args)                                                                                   \
    {                                                                                                        \
#name, args, .map = map_##name                                                                       \
    }

static const struct promql_function functions[] = {
    MAPPED(abs, "v"),
    MAPPED(acos, "v"),
    MAPPED(acosh, "v"),
    MAPPED(asin, "v"),
    MAPPED(asinh, "v"),
    MAPPED(atan, "v"),
    MAPPED(atanh, "v"),
    MAPPED(ceil, "v"),
    MAPPED(clamp, "vss"),
    MAPPED(clamp_max, "vs"),
    MAPPED(clamp_min, "vs"),
    MAPPED(cos, "v"),
    MAPPED(cosh, "v"),
    MAPPED(day_of_month, "?v"),
    MAPPED(day_of_week, "?v"),
    MAPPED(day_of_year, "?v"),
    MAPPED(days_in_month, "?v"),
    MAPPED(deg, "v"),
    MAPPED(exp, "v"),
    MAPPED(floor, "v"),
    MAPPED(hour, "?v"),
    MAPPED(ln, "v"),
    MAPPED(log10, "v"),
    MAPPED(log2, "v"),
    MAPPED(minute, "?v"),
    MAPPED(month, "?v"),
    MAPPED(rad, "v"),
    MAPPED(round, "v?s"),
    MAPPED(sgn, "v"),
    MAPPED(sin, "v"),
    MAPPED(sinh, "v"),
    MAPPED(sqrt, "v"),
    MAPPED(tan, "v"),
    MAPPED(tanh, "v"),
    MAPPED(year, "?v"),
    {"pi", "", .map = map_pi, .is_scalar = true},
    {"time", "", .map = map_same, .is_scalar = true},
    {"avg_over_time", "m", .range = range_avg},
    {"changes", "m", .range = range_changes, .is_approximate = true},
    {"count_over_time", "m", .range = range_count},
    {"delta", "m", .range = range_delta, .is_approximate = true},
    {"deriv", "m", .range = range_deriv, .is_approximate = true},
    {"idelta", "m", .range = range_idelta, .is_approximate = true},
    {"increase", "m", .range = range_increase, .divides = true},
    {"irate", "m", .range = range_irate, .is_approximate = true},
    {"last_over_time", "m", .range = range_last, .keeps_name = true},
    {"max_over_time", "m", .range = range_max},
    {"min_over_time", "m", .range = range_min},
    {"predict_linear", "ms", .range = range_predict, .is_approximate = true},
    {"present_over_time", "m", .range = range_present},
    {"quantile_over_time", "sm", .range = range_quantile, .is_approximate = true},
    {"rate", "m", .range = range_rate, .divides = true},
    {"resets", "m", .range = range_resets, .is_approximate = true},
    {"sum_over_time", "m", .range = range_sum},
    {"absent", "v", .call = call_absent},
    {"absent_over_time", "m", .range = range_present, .call = call_absent, .keeps_name = true},
    {"histogram_quantile", "sv", .call = call_histogram_quantile},
    {"label_join", "vtt?*t", .call = call_label_join},
    {"label_replace", "vtttt", .call = call_label_replace},
    {"scalar", "v", .call = call_scalar, .is_scalar = true},
    {"sort", "v", .call = call_sort},
    {"sort_desc", "v", .call = call_sort},
    {"timestamp", "v", .call = call_timestamp},
    {"vector", "s", .call = call_vector},
    {.name = "holt_winters"},
    {.name = "histogram_count"},
    {.name = "histogram_fraction"},
    {.name = "histogram_sum"},
    {.name = "stddev_over_time"},
    {.name = "stdvar_over_time"},
};

const struct promql_function *promql_function_find(struct bytes name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (bytes_equal_str(name, functions[i].name))
            return &functions[i];
    return NULL;
}

void promql_function_arity(const struct promql_function *f, size_t *least, size_t *most)
{
    bool is_optional = false;
    *least = *most = 0;
    for (const char *c = f->args; *c; c++) {
        if (*c == '?')
            is_optional = true;
        else if (*c == '*')
            *most = SIZE_MAX - 1;
        else
            *most += 1, *least += !is_optional;
    }
}

enum promql_type promql_function_arg(const struct promql_function *f, size_t i)
{
    char letter = 's';
    for (const char *c = f->args; *c; c++) {
        if (*c == '?' || *c == '*')
            continue;
        letter = *c;
        if (i-- == 0)
            break;
    }
    return letter == 's'   ? PROMQL_SCALAR
           : letter == 'v' ? PROMQL_VECTOR
           : letter == 'm' ? PROMQL_MATRIX
                           : PROMQL_STRING;
}

#include "render/axes.h"

#include <math.h>
#include <stdio.h>

#define TICK_LENGTH 2.5
#define LABEL_GAP 3.0
#define POWERS_FROM 5.0  /* a log axis that spans a larger factor has powers of two as ticks, */
#define POWERS_LEAST .06 /* unless it goes down to powers that are long to write: 0.03125 */
#define HALVES_FROM 2.0  /* from here on also what lies between them: 0.75, 1, 1.5, 2, 3 */

/* The smallest of 1, 2, 5 x 10^k that is at least `width`. */
static double nice_step(double width)
{
    double power = pow(10, floor(log10(width)));
    static const double steps[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        if (width <= steps[i] * power * (1 + 1e-9))
            return steps[i] * power;
    return 10 * power;
}

static int decimals_of(double step)
{
    int decimals = (int)ceil(-log10(step) - 1e-9);
    return decimals > 0 ? decimals : 0;
}

static void add_tick(struct axis *axis, double value)
{
    if (axis->tick_count < AXES_TICKS_MAXIMUM)
        axis->ticks[axis->tick_count++] = value;
}

static void add_steps(struct axis *axis, double step)
{
    axis->decimals = decimals_of(step);
    double first = ceil(axis->low / step - 1e-9) + 0.0;
    for (int i = 0; i < AXES_TICKS_MAXIMUM && (first + i) * step <= axis->high + step * 1e-6; i++)
        add_tick(axis, (first + i) * step);
}

static void add_powers(struct axis *axis, int wanted)
{
    int first = (int)ceil(log2(axis->low) - 1e-9), last = (int)floor(log2(axis->high) + 1e-9);
    int stride = (last - first) / wanted + 1;
    for (int k = first; k <= last; k++)
        if (k % stride == 0)
            add_tick(axis, exp2(k));
}

static void add_decades(struct axis *axis, int wanted)
{
    static const double factors[] = {1, 2, 5};
    double decades = log10(axis->high / axis->low);
    int count = 3 * decades <= wanted ? 3 : 1, stride = 1 + (int)(decades / wanted);
    for (int k = (int)floor(log10(axis->low)); pow(10, k) <= axis->high * (1 + 1e-9); k++)
        for (int i = 0; i < count && k % stride == 0; i++) {
            double value = factors[i] * pow(10, k);
            if (value >= axis->low * (1 - 1e-9) && value <= axis->high * (1 + 1e-9))
                add_tick(axis, value);
        }
}

static void add_halves(struct axis *axis)
{
    for (int k = (int)floor(log2(axis->low)); exp2(k) <= axis->high; k++) {
        const double values[] = {exp2(k), 1.5 * exp2(k)};
        for (int i = 0; i < 2; i++)
            if (values[i] >= axis->low && values[i] <= axis->high)
                add_tick(axis, values[i]);
    }
}

void axis_init(struct axis *axis, enum axis_scale scale, double low, double high, double start, double end, int wanted)
{
    *axis = (struct axis){.scale = scale, .low = low, .high = high, .start = start, .end = end};
    wanted = wanted < 1 ? 1 : wanted >= AXES_TICKS_MAXIMUM ? AXES_TICKS_MAXIMUM - 1 : wanted;
    if (scale != AXIS_LINEAR && high / low > HALVES_FROM) {
        axis->decimals = AXES_DECIMALS_SHORTEST;
        if (high / low <= POWERS_FROM)
            add_halves(axis);
        else if (scale == AXIS_LOG2 && low >= POWERS_LEAST)
            add_powers(axis, wanted);
        else
            add_decades(axis, wanted);
        return;
    }
    double step = nice_step((high - low) / wanted);
    if (scale == AXIS_LINEAR) {
        axis->low = floor(low / step + 1e-9) * step;
        axis->high = ceil(high / step - 1e-9) * step;
    }
    add_steps(axis, step);
}

void axis_init_log(struct axis *axis, enum axis_scale scale, double low, double high, double start, double end,
                   int wanted)
{
    double pad = pow(fmax(high / low, 1.05), .06);
    axis_init(axis, scale, low / pad, high * pad, start, end, wanted);
}

void axis_end_at(struct axis *axis, double high)
{
    axis->high = high;
    while (axis->tick_count > 0 && axis->ticks[axis->tick_count - 1] > high)
        axis->tick_count--;
}

double axis_position(const struct axis *axis, double value)
{
    double part = axis->scale != AXIS_LINEAR ? log(value / axis->low) / log(axis->high / axis->low)
                                             : (value - axis->low) / (axis->high - axis->low);
    return axis->start + part * (axis->end - axis->start);
}

void axis_label(const struct axis *axis, int tick, char *text)
{
    double value = axis->ticks[tick];
    const char *sign = value < 0 ? "−" : "";
    if (axis->decimals == AXES_DECIMALS_SHORTEST)
        snprintf(text, AXES_LABEL_CAPACITY, fabs(value) < 1e6 ? "%s%.6g" : "%s%.4g", sign, fabs(value));
    else
        snprintf(text, AXES_LABEL_CAPACITY, "%s%.*f", sign, axis->decimals, fabs(value));
}

void axes_draw_x(struct canvas *canvas, const struct axis *axis, double y, double top)
{
    double free_from = -INFINITY;
    for (int i = 0; i < axis->tick_count; i++) {
        double x = axis_position(axis, axis->ticks[i]);
        char text[AXES_LABEL_CAPACITY];
        axis_label(axis, i, text);
        canvas_line(canvas, x, y, x, top, .4, DASH_NONE, colour_light);
        canvas_line(canvas, x, y, x, y + TICK_LENGTH, .5, DASH_NONE, colour_black);
        double half = canvas_text_width(canvas, AXES_LABEL_SIZE, text) / 2;
        if (x - half < free_from)
            continue;
        canvas_text(canvas, x, y + TICK_LENGTH + AXES_LABEL_SIZE, AXES_LABEL_SIZE, ALIGN_CENTRE, colour_black, text);
        free_from = x + half + LABEL_GAP;
    }
}

void axes_draw_y(struct canvas *canvas, const struct axis *axis, double x, double right, bool labelled)
{
    for (int i = 0; i < axis->tick_count; i++) {
        double y = axis_position(axis, axis->ticks[i]);
        char text[AXES_LABEL_CAPACITY];
        axis_label(axis, i, text);
        canvas_line(canvas, x, y, right, y, .4, DASH_NONE, colour_light);
        canvas_line(canvas, x - TICK_LENGTH, y, x, y, .5, DASH_NONE, colour_black);
        if (labelled)
            canvas_text(canvas, x - TICK_LENGTH - 1.5, y + .32 * AXES_LABEL_SIZE, AXES_LABEL_SIZE, ALIGN_RIGHT,
                        colour_black, text);
    }
}

void axes_draw_frame(struct canvas *canvas, const struct axis *x, const struct axis *y)
{
    double xs[] = {x->start, x->end, x->end, x->start, x->start};
    double ys[] = {y->start, y->start, y->end, y->end, y->start};
    canvas_polyline(canvas, xs, ys, 5, .5, colour_black);
}

#include "render/figure_parts.h"

#include <math.h>
#include <stddef.h>

#define PANEL_HEIGHT 58.0
#define GAP 8.0
#define HEAD 4.0
#define FOOT 30.0
#define LEFT 44.0
#define DEVICES_MAXIMUM 8
#define SHIFT .5 /* sideways, from device to device */

static const struct quantity {
    const char *title;
    size_t offset; /* of the reading in struct device_readings */
} quantities[] = {
    {"clock / MHz", offsetof(struct device_readings, clock_mhz)},
    {"temp. / °C", offsetof(struct device_readings, temperature_c)},
    {"power / W", offsetof(struct device_readings, power_w)},
};
enum { QUANTITY_COUNT = sizeof quantities / sizeof *quantities };

/* Of the time axis, whose numbers are neither very small nor very large. */
static const struct unit {
    double seconds, from; /* the campaign's length, in seconds, that has it */
    const char *title;
} units[] = {
    {3600, 7200, "hours from the first attempt"},
    {60, 120, "minutes from the first attempt"},
    {1, 0, "seconds from the first attempt"},
};

static const struct reading *reading_of(const struct device_readings *readings, int quantity)
{
    return (const struct reading *)((const char *)readings + quantities[quantity].offset);
}

static bool is_known(const struct summary *summary, int quantity)
{
    for (int i = 0; i < summary->telemetry_count; i++)
        if (isfinite(reading_of(&summary->telemetry[i], quantity)->mean))
            return true;
    return false;
}

static int count_bands(const struct sheet *sheet)
{
    for (int i = 0; i < QUANTITY_COUNT; i++)
        if (is_known(sheet->summary, i))
            return 1;
    return 0;
}

static int count_devices(const struct summary *summary)
{
    int devices = 0;
    for (int i = 0; i < summary->telemetry_count; i++)
        if (summary->telemetry[i].device >= devices)
            devices = summary->telemetry[i].device + 1;
    return devices < DEVICES_MAXIMUM ? devices : DEVICES_MAXIMUM;
}

/* One colour for each of `devices` devices, as far apart as they can be, none of a method's; further devices share the
 * last. */
static struct colour device_colour(int device, int devices)
{
    double part = devices > 1 ? (double)(device < devices ? device : devices - 1) / (devices - 1) : 0;
    return colour_mixed((struct colour){0, .38, .28, 1}, (struct colour){.93, .68, .10, 1}, part);
}

static double last_start(const struct summary *summary)
{
    double last = 0;
    for (int i = 0; i < summary->telemetry_count; i++)
        last = fmax(last, summary->telemetry[i].start_s);
    return last;
}

static void make_y(const struct summary *summary, int quantity, double start, double end, struct axis *y)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < summary->telemetry_count; i++) {
        const struct reading *reading = reading_of(&summary->telemetry[i], quantity);
        if (isfinite(reading->mean)) {
            low = fmin(low, fmin(reading->minimum, reading->mean));
            high = fmax(high, fmax(reading->maximum, reading->mean));
        }
    }
    double margin = high > low ? (high - low) / 20 : fmax(1, fabs(low) / 100);
    axis_init(y, AXIS_LINEAR, low - margin, high + margin, start, end, 4);
}

static void draw_readings(struct canvas *canvas, const struct summary *summary, int quantity, double unit,
                          const struct axis *x, const struct axis *y)
{
    double size = summary->telemetry_count > 300 ? 1.2 : 2;
    int devices = count_devices(summary);
    for (int i = 0; i < summary->telemetry_count; i++) {
        const struct device_readings *readings = &summary->telemetry[i];
        const struct reading *reading = reading_of(readings, quantity);
        if (!isfinite(reading->mean))
            continue;
        double at = axis_position(x, readings->start_s / unit) + SHIFT * readings->device,
               mean = axis_position(y, reading->mean);
        struct colour colour = device_colour(readings->device, devices);
        canvas_line(canvas, at, axis_position(y, reading->minimum), at, axis_position(y, reading->maximum), .5,
                    DASH_NONE, colour_faded(colour, .35));
        canvas_marker(canvas, MARKER_CIRCLE, at, mean, size, false, colour);
        if (quantity == 0 && (readings->slowdown || readings->power_cap))
            canvas_marker(canvas, readings->slowdown ? MARKER_TRIANGLE_DOWN : MARKER_TRIANGLE, at, y->start - 5, 3.5,
                          !readings->slowdown, colour_black);
    }
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    (void)band;
    const struct summary *summary = sheet->summary;
    const double last = last_start(summary), start = top + HEAD;
    const struct unit *unit = units;
    while (last < unit->from)
        unit++;
    const double end = fmax(last / unit->seconds, 1e-3);
    int drawn = 0;
    struct axis x, y;
    axis_init(&x, AXIS_LINEAR, 0, end, LEFT, sheet->width - 6, (int)(sheet->width / 50));
    axis_end_at(&x, end * 1.02);
    for (int i = 0; i < QUANTITY_COUNT; i++) {
        if (!is_known(summary, i))
            continue;
        double above = start + drawn++ * (PANEL_HEIGHT + GAP);
        make_y(summary, i, above + PANEL_HEIGHT, above, &y);
        axes_draw_y(canvas, &y, x.start, x.end, true);
        draw_readings(canvas, summary, i, unit->seconds, &x, &y);
        axes_draw_frame(canvas, &x, &y);
        canvas_text_upwards(canvas, 10, above + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, quantities[i].title);
    }
    axes_draw_x(canvas, &x, y.start, y.start);
    canvas_text(canvas, (x.start + x.end) / 2, y.start + 23, AXES_TITLE_SIZE, ALIGN_CENTRE, colour_black, unit->title);
    return y.start - top + FOOT;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    static const char *const names[DEVICES_MAXIMUM] = {"device 0", "1", "2", "3", "4", "5", "6", "7"};
    const struct summary *summary = sheet->summary;
    struct parts_key keys[DEVICES_MAXIMUM + 2];
    int count = 0, devices = count_devices(summary);
    bool slowdown = false, cap = false, more = false;
    for (int i = 0; i < summary->telemetry_count; i++) {
        more = more || summary->telemetry[i].device >= DEVICES_MAXIMUM;
        slowdown = slowdown || summary->telemetry[i].slowdown;
        cap = cap || summary->telemetry[i].power_cap;
    }
    for (int i = 0; i < devices; i++)
        keys[count++] = (struct parts_key){more && i == DEVICES_MAXIMUM - 1 ? "7 and more" : names[i], KEY_MARKER,
                                           MARKER_CIRCLE, device_colour(i, devices)};
    if (slowdown)
        keys[count++] = (struct parts_key){"slowed down", KEY_MARKER, MARKER_TRIANGLE_DOWN, colour_black};
    if (cap)
        keys[count++] = (struct parts_key){"at its power cap", KEY_HOLLOW, MARKER_TRIANGLE, colour_black};
    return parts_draw_legend(canvas, sheet, LEFT, keys, count);
}

const struct figure figure_devices = {"devices", "Clocks, temperature and power over the campaign", count_bands,
                                      draw_legend, draw_band};

#include "render/canvas.h"

#include "collect/base/file.h"

#include <cairo-pdf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define PNG_PIXELS_PER_POINT 3.0
#define HATCH_STEP 4.0

struct canvas {
    cairo_t *cairo;
    const struct fonts *fonts;
};

const struct colour colour_black = {0, 0, 0, 1}, colour_orange = {.902, .624, 0, 1}, colour_sky = {.337, .706, .914, 1},
                    colour_green = {0, .62, .451, 1}, colour_yellow = {.941, .894, .259, 1},
                    colour_blue = {0, .447, .698, 1}, colour_vermilion = {.835, .369, 0, 1},
                    colour_purple = {.8, .475, .655, 1}, colour_grey = {.45, .45, .45, 1},
                    colour_light = {.88, .88, .88, 1}, colour_white = {1, 1, 1, 1};

struct colour colour_faded(struct colour colour, double alpha)
{
    colour.alpha = alpha;
    return colour;
}

struct colour colour_mixed(struct colour first, struct colour second, double part)
{
    return (struct colour){
        first.red + part * (second.red - first.red), first.green + part * (second.green - first.green),
        first.blue + part * (second.blue - first.blue), first.alpha + part * (second.alpha - first.alpha)};
}

static void set_colour(struct canvas *canvas, struct colour colour)
{
    cairo_set_source_rgba(canvas->cairo, colour.red, colour.green, colour.blue, colour.alpha);
}

/* Runs of one font are shown (or only measured) one after the other from (x, y); the width of all. */
static double run_text(struct canvas *canvas, double x, double y, double size, const char *text, bool show)
{
    char *printable = fonts_printable(canvas->fonts, text);
    double start = x;
    cairo_set_font_size(canvas->cairo, size);
    for (const char *at = printable; *at;) {
        int font = -1;
        const char *end = at;
        while (*end) {
            utf8proc_int32_t point;
            unsigned long glyph;
            utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)end, -1, &point);
            int found = fonts_find(canvas->fonts, (uint32_t)point, &glyph);
            if (font >= 0 && found != font)
                break;
            font = found;
            end += length;
        }
        char *run = xformat("%.*s", (int)(end - at), at);
        cairo_text_extents_t extents;
        cairo_set_font_face(canvas->cairo, fonts_face(canvas->fonts, (enum font)font));
        cairo_text_extents(canvas->cairo, run, &extents);
        if (show) {
            cairo_move_to(canvas->cairo, x, y);
            cairo_show_text(canvas->cairo, run);
        }
        x += extents.x_advance;
        free(run);
        at = end;
    }
    free(printable);
    return x - start;
}

double canvas_text_width(struct canvas *canvas, double size, const char *text)
{
    return run_text(canvas, 0, 0, size, text, false);
}

void canvas_text(struct canvas *canvas, double x, double y, double size, enum align align, struct colour colour,
                 const char *text)
{
    double shift = align == ALIGN_LEFT ? 0 : canvas_text_width(canvas, size, text) * (align == ALIGN_CENTRE ? .5 : 1);
    set_colour(canvas, colour);
    run_text(canvas, x - shift, y, size, text, true);
}

void canvas_text_upwards(struct canvas *canvas, double x, double y, double size, const char *text)
{
    cairo_save(canvas->cairo);
    cairo_translate(canvas->cairo, x, y);
    cairo_rotate(canvas->cairo, -M_PI / 2);
    canvas_text(canvas, 0, 0, size, ALIGN_CENTRE, colour_black, text);
    cairo_restore(canvas->cairo);
}

/* The place of a character: bytes that go on with a character are no place. */
static bool begins_character(const char *text, size_t at)
{
    return ((unsigned char)text[at] & 0xC0) != 0x80;
}

void canvas_text_within(struct canvas *canvas, double x, double y, double width, double size, enum align align,
                        const char *text)
{
    char *whole = fonts_printable(canvas->fonts, text), *shown = xstrdup(whole);
    size_t left = strlen(whole) / 2, right = left;
    while (canvas_text_width(canvas, size, shown) > width + .05 && (left > 0 || whole[right])) {
        while (left > 0 && !begins_character(whole, --left))
            ;
        while (whole[right] && !begins_character(whole, ++right))
            ;
        free(shown);
        shown = xformat("%.*s…%s", (int)left, whole, whole + right);
    }
    canvas_text(canvas, x, y, size, align, colour_black, shown);
    free(shown);
    free(whole);
}

/* Bytes of the text that fit the width: up to a good place to break, or as many characters as fit, at least one. */
static size_t fit_line(struct canvas *canvas, double width, double size, const char *text)
{
    size_t good = 0, fits = 0;
    for (size_t at = 1; at <= strlen(text); at++) {
        if (!begins_character(text, at))
            continue;
        char *part = xformat("%.*s", (int)at, text);
        bool over = canvas_text_width(canvas, size, part) > width + .05;
        free(part);
        if (over && fits > 0)
            return good ? good : fits;
        fits = at;
        if (strchr("-_. ", text[at - 1]))
            good = at;
    }
    return fits;
}

/* Lines of `text`, whose starts are stored; the last may be too long. */
static int break_lines(struct canvas *canvas, double width, double size, const char *text,
                       const char *starts[CANVAS_LINES + 1])
{
    int lines = 0;
    const char *end = text + strlen(text);
    for (const char *at = text; at < end && lines < CANVAS_LINES; lines++) {
        starts[lines] = at;
        at += lines + 1 < CANVAS_LINES ? fit_line(canvas, width, size, at) : strlen(at);
    }
    starts[lines] = end;
    return lines;
}

int canvas_count_lines(struct canvas *canvas, double width, double size, const char *text)
{
    const char *starts[CANVAS_LINES + 1];
    char *printable = fonts_printable(canvas->fonts, text);
    int lines = break_lines(canvas, width, size, printable, starts);
    free(printable);
    return lines;
}

int canvas_text_lines(struct canvas *canvas, double x, double bottom, double width, double size, const char *text)
{
    const char *starts[CANVAS_LINES + 1];
    char *printable = fonts_printable(canvas->fonts, text);
    int lines = break_lines(canvas, width, size, printable, starts);
    for (int i = 0; i < lines; i++) {
        char *line = xformat("%.*s", (int)(starts[i + 1] - starts[i]), starts[i]);
        canvas_text_within(canvas, x, bottom - (lines - 1 - i) * 1.15 * size, width, size, ALIGN_CENTRE, line);
        free(line);
    }
    free(printable);
    return lines;
}

static void stroke(struct canvas *canvas, double width, enum dash dash, struct colour colour)
{
    static const double patterns[][2] = {[DASH_DASHED] = {4, 2.5}, [DASH_DOTTED] = {1, 1.8}};
    cairo_set_dash(canvas->cairo, patterns[dash], dash == DASH_NONE ? 0 : 2, 0);
    cairo_set_line_width(canvas->cairo, width);
    set_colour(canvas, colour);
    cairo_stroke(canvas->cairo);
}

void canvas_line(struct canvas *canvas, double x0, double y0, double x1, double y1, double width, enum dash dash,
                 struct colour colour)
{
    cairo_move_to(canvas->cairo, x0, y0);
    cairo_line_to(canvas->cairo, x1, y1);
    stroke(canvas, width, dash, colour);
}

static void path(struct canvas *canvas, const double *xs, const double *ys, int count)
{
    cairo_new_path(canvas->cairo);
    for (int i = 0; i < count; i++)
        cairo_line_to(canvas->cairo, xs[i], ys[i]);
}

void canvas_polyline(struct canvas *canvas, const double *xs, const double *ys, int count, double width,
                     struct colour colour)
{
    path(canvas, xs, ys, count);
    stroke(canvas, width, DASH_NONE, colour);
}

void canvas_polygon(struct canvas *canvas, const double *xs, const double *ys, int count, struct colour colour)
{
    path(canvas, xs, ys, count);
    cairo_close_path(canvas->cairo);
    set_colour(canvas, colour);
    cairo_fill(canvas->cairo);
}

void canvas_rectangle(struct canvas *canvas, double x, double y, double width, double height, struct colour colour)
{
    cairo_rectangle(canvas->cairo, x, y, width, height);
    set_colour(canvas, colour);
    cairo_fill(canvas->cairo);
}

void canvas_hatch(struct canvas *canvas, double x, double y, double width, double height, struct colour colour)
{
    cairo_save(canvas->cairo);
    cairo_rectangle(canvas->cairo, x, y, width, height);
    cairo_clip(canvas->cairo);
    for (double from = x - height; from < x + width; from += HATCH_STEP)
        canvas_line(canvas, from, y + height, from + height, y, .6, DASH_NONE, colour);
    cairo_restore(canvas->cairo);
}

void canvas_marker(struct canvas *canvas, enum marker marker, double x, double y, double size, bool hollow,
                   struct colour colour)
{
    static const struct {
        int corners;
        double first, radius; /* turn of the first corner; radius that gives all markers about one area */
    } shapes[MARKER_COUNT] = {
        [MARKER_CIRCLE] = {0, 0, .5},      [MARKER_SQUARE] = {4, .125, .64},       [MARKER_DIAMOND] = {4, 0, .66},
        [MARKER_TRIANGLE] = {3, .75, .68}, [MARKER_TRIANGLE_DOWN] = {3, .25, .68}, [MARKER_PENTAGON] = {5, .75, .58},
        [MARKER_HEXAGON] = {6, 0, .56},    [MARKER_TRIANGLE_LEFT] = {3, .5, .68},
    };
    double radius = shapes[marker].radius * size;
    cairo_new_path(canvas->cairo);
    if (shapes[marker].corners == 0)
        cairo_arc(canvas->cairo, x, y, radius, 0, 2 * M_PI);
    for (int i = 0; i < shapes[marker].corners; i++) {
        double turn = 2 * M_PI * (shapes[marker].first + (double)i / shapes[marker].corners);
        cairo_line_to(canvas->cairo, x + radius * cos(turn), y + radius * sin(turn));
    }
    cairo_close_path(canvas->cairo);
    set_colour(canvas, hollow ? colour_white : colour);
    cairo_fill_preserve(canvas->cairo);
    stroke(canvas, .9, DASH_NONE, colour);
}

struct buffer {
    unsigned char *bytes;
    size_t size, capacity;
};

static cairo_status_t buffer_add(void *closure, const unsigned char *bytes, unsigned int size)
{
    struct buffer *buffer = closure;
    if (buffer->size + size > buffer->capacity) {
        buffer->capacity = 2 * (buffer->size + size);
        buffer->bytes = xrealloc(buffer->bytes, buffer->capacity, 1);
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return CAIRO_STATUS_SUCCESS;
}

static void draw_on(cairo_surface_t *surface, const struct fonts *fonts, double scale, canvas_draw *draw,
                    const void *context)
{
    struct canvas canvas = {cairo_create(surface), fonts};
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(canvas.cairo, options);
    cairo_font_options_destroy(options);
    cairo_scale(canvas.cairo, scale, scale);
    cairo_set_line_join(canvas.cairo, CAIRO_LINE_JOIN_ROUND);
    draw(&canvas, context);
    cairo_status_t status = cairo_status(canvas.cairo);
    cairo_destroy(canvas.cairo);
    if (status != CAIRO_STATUS_SUCCESS)
        die("cairo: %s", cairo_status_to_string(status));
}

static void make_pdf(const struct fonts *fonts, const struct canvas_page *page, canvas_draw *draw, const void *context,
                     struct buffer *buffer)
{
    cairo_surface_t *surface =
        cairo_pdf_surface_create_for_stream(buffer_add, buffer, page->width * page->scale, page->height * page->scale);
    cairo_pdf_surface_restrict_to_version(surface, CAIRO_PDF_VERSION_1_5);
    cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, page->date);
    draw_on(surface, fonts, page->scale, draw, context);
    cairo_surface_finish(surface);
    cairo_surface_destroy(surface);
}

static void make_png(const struct fonts *fonts, const struct canvas_page *page, canvas_draw *draw, const void *context,
                     struct buffer *buffer)
{
    double scale = page->scale * PNG_PIXELS_PER_POINT;
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(page->width * scale), (int)ceil(page->height * scale));
    cairo_t *cairo = cairo_create(surface);
    cairo_set_source_rgb(cairo, 1, 1, 1);
    cairo_paint(cairo);
    cairo_destroy(cairo);
    draw_on(surface, fonts, scale, draw, context);
    if (cairo_surface_write_to_png_stream(surface, buffer_add, buffer) != CAIRO_STATUS_SUCCESS)
        die("cairo cannot write a PNG");
    cairo_surface_destroy(surface);
}

void canvas_measure(const struct fonts *fonts, canvas_draw *draw, const void *context)
{
    cairo_surface_t *surface = cairo_recording_surface_create(CAIRO_CONTENT_COLOR_ALPHA, NULL);
    draw_on(surface, fonts, 1, draw, context);
    cairo_surface_destroy(surface);
}

static int write_buffer(const char *folder, const char *name, const char *ending, const struct buffer *buffer,
                        struct error *error)
{
    char *file = xformat("%s/%s.%s", folder, name, ending);
    int result = file_write_whole(file, buffer->bytes, buffer->size, error);
    free(file);
    return result;
}

int canvas_write(const struct fonts *fonts, const struct canvas_page *page, canvas_draw *draw, const void *context,
                 const char *folder, const char *name, struct error *error)
{
    struct buffer pdf = {0}, png = {0};
    make_pdf(fonts, page, draw, context, &pdf);
    make_png(fonts, page, draw, context, &png);
    int result = write_buffer(folder, name, "pdf", &pdf, error);
    if (!result)
        result = write_buffer(folder, name, "png", &png, error);
    free(pdf.bytes);
    free(png.bytes);
    return result;
}

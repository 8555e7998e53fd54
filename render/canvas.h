/* A canvas for one figure: the same drawing function makes the PDF and the PNG.
 *
 * Units are points (1/72 inch), x to the right and y downwards from the upper left corner. Files depend on what is
 * drawn and on the date they are stamped with, and on nothing else. */
#ifndef RENDER_CANVAS_H
#define RENDER_CANVAS_H

#include "render/fonts.h"

#include <stdbool.h>

struct canvas; /* lent to the drawing function */

struct colour {
    double red, green, blue, alpha;
};

/* Okabe and Ito's palette, which colour-blind readers can tell apart, and greys. */
extern const struct colour colour_black, colour_orange, colour_sky, colour_green, colour_yellow, colour_blue,
    colour_vermilion, colour_purple, colour_grey, colour_light, colour_white;

enum align { ALIGN_LEFT, ALIGN_CENTRE, ALIGN_RIGHT };
enum marker {
    MARKER_CIRCLE,
    MARKER_SQUARE,
    MARKER_DIAMOND,
    MARKER_TRIANGLE,
    MARKER_TRIANGLE_DOWN,
    MARKER_PENTAGON,
    MARKER_HEXAGON,
    MARKER_TRIANGLE_LEFT,
    MARKER_COUNT
};
enum dash { DASH_NONE, DASH_DASHED, DASH_DOTTED };

struct colour colour_faded(struct colour colour, double alpha);

/* part 0: the first, part 1: the second. */
struct colour colour_mixed(struct colour first, struct colour second, double part);

/* Text with its baseline at y. What no font has is drawn as "U+XXXX". */
void canvas_text(struct canvas *canvas, double x, double y, double size, enum align align, struct colour colour,
                 const char *text);

/* Reading upwards, centred at (x, y). */
void canvas_text_upwards(struct canvas *canvas, double x, double y, double size, const char *text);

/* Like canvas_text, with an ellipsis in its middle where it does not fit `width`. */
void canvas_text_within(struct canvas *canvas, double x, double y, double width, double size, enum align align,
                        const char *text);

/* Centred at x in up to CANVAS_LINES lines of this width, the last with its baseline at `bottom`; names are broken
 * behind - _ . and blanks, or anywhere. Answers the number of lines. */
#define CANVAS_LINES 3
int canvas_text_lines(struct canvas *canvas, double x, double bottom, double width, double size, const char *text);
/* The number of lines alone. */
int canvas_count_lines(struct canvas *canvas, double width, double size, const char *text);

double canvas_text_width(struct canvas *canvas, double size, const char *text);

void canvas_line(struct canvas *canvas, double x0, double y0, double x1, double y1, double width, enum dash dash,
                 struct colour colour);
void canvas_polyline(struct canvas *canvas, const double *xs, const double *ys, int count, double width,
                     struct colour colour);
void canvas_polygon(struct canvas *canvas, const double *xs, const double *ys, int count, struct colour colour);
void canvas_rectangle(struct canvas *canvas, double x, double y, double width, double height, struct colour colour);
void canvas_hatch(struct canvas *canvas, double x, double y, double width, double height, struct colour colour);
void canvas_marker(struct canvas *canvas, enum marker marker, double x, double y, double size, bool hollow,
                   struct colour colour);

typedef void canvas_draw(struct canvas *canvas, const void *context);

/* Draws on nothing, so that the function can measure. */
void canvas_measure(const struct fonts *fonts, canvas_draw *draw, const void *context);

struct canvas_page {
    double width, height; /* in the units of the drawing */
    double scale;         /* points a unit */
    const char *date;     /* RFC 3339 UTC, the PDF's creation date */
};

/* Draws a figure twice and writes FOLDER/NAME.pdf and FOLDER/NAME.png. */
int canvas_write(const struct fonts *fonts, const struct canvas_page *page, canvas_draw *draw, const void *context,
                 const char *folder, const char *name, struct error *error);

#endif

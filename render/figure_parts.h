/* What figures share: the look of methods, panels side by side, legends, rows of arms. */
#ifndef RENDER_FIGURE_PARTS_H
#define RENDER_FIGURE_PARTS_H

#include "render/figures.h"

#define PARTS_SMALL_SIZE 6.5 /* of text within plots */
#define PARTS_GAP 12.0       /* between panels */

/* --- methods ------------------------------------------------------------------------------------------------------ */

struct parts_style {
    const char *method;
    enum marker marker;
    struct colour colour;
};

/* One look for each method in all figures. */
const struct parts_style *parts_method_style(const char *method);

/* The style of an arm, its colour the lighter the fewer nodes: for figures in which budgets stand beside each other. */
struct parts_style parts_arm_style(const struct summary *summary, int arm);

/* Whether an arm of this method is there. */
bool parts_has_method(const struct summary *summary, const char *method);

/* --- groups: arms of equal ranks and concurrency ------------------------------------------------------------------ */

/* Their number, and an arm of each in `arms`, which may be NULL, else has room for all arms. */
int parts_find_groups(const struct summary *summary, int *arms);

/* What an arm is called beside others of its group's heading: its label where groups have headings. */
const char *parts_arm_text(const struct summary *summary, int arm);

/* --- panels side by side ------------------------------------------------------------------------------------------ */

/* Whether there is something to show of a workload, or of SUMMARY_ALL_WORKLOADS. */
typedef bool parts_shows(const struct summary *summary, int workload);

/* A panel for each workload of which there is something to show, and for all together. */
struct parts_panels {
    parts_shows *shows; /* NULL: each has */
    bool overall;
};
int parts_count_panels(const struct summary *summary, const struct parts_panels *panels);

struct parts_grid {
    struct parts_panels of;
    double left, gap, panel_width, width;
    int panels, columns, bands;
};

/* As many columns as fit at `least` width each, at most four, evenly over the bands. */
struct parts_grid parts_make_grid(const struct sheet *sheet, struct parts_panels of, double left, double gap,
                                  double least);
int parts_grid_workload(const struct parts_grid *grid, const struct summary *summary, int panel);
double parts_grid_left(const struct parts_grid *grid, int panel);
double parts_grid_middle(const struct parts_grid *grid, int band); /* of its panels together */

/* Panels of this band. */
int parts_grid_first(const struct parts_grid *grid, int band);
int parts_grid_last(const struct parts_grid *grid, int band);

/* The height that titles of a band need, and the titles, just above `bottom`. */
double parts_title_height(struct canvas *canvas, const struct sheet *sheet, const struct parts_grid *grid, int band);
void parts_draw_titles(struct canvas *canvas, const struct sheet *sheet, const struct parts_grid *grid, int band,
                       double bottom);

/* --- legends ------------------------------------------------------------------------------------------------------ */

struct parts_key {
    const char *text;
    enum { KEY_MARKER, KEY_HOLLOW, KEY_SWATCH, KEY_HATCH, KEY_LINE, KEY_DASHED, KEY_INTERVAL, KEY_WHISKER } kind;
    enum marker marker;
    struct colour colour;
};

/* The keys of the methods that are there, into keys[PARTS_METHODS]; answers how many. */
#define PARTS_METHODS 8
int parts_method_keys(const struct summary *summary, struct parts_key *keys);

/* Keys from `left`, in as many lines as they need, from the sheet's top. Answers the height. */
double parts_draw_legend(struct canvas *canvas, const struct sheet *sheet, double left, const struct parts_key *keys,
                         int count);

/* --- values ------------------------------------------------------------------------------------------------------- */

/* "— INCOMPLETE" centred at (x, y) on white within `width`: what stands where a number is missing. */
void parts_draw_missing(struct canvas *canvas, double x, double y, double width, const struct missing *missing);

/* A line with caps at its ends. */
void parts_draw_whisker(struct canvas *canvas, double x0, double x1, double y, double width, struct colour colour);
void parts_draw_whisker_upwards(struct canvas *canvas, double x, double y0, double y1, double width,
                                struct colour colour);

/* Takes the interval's numbers above 0 into the range. */
void parts_widen(const struct interval *interval, double *low, double *high);

/* Orders ints by a number each. */
void parts_sort(int *items, int count, double (*key)(const struct summary *summary, int item),
                const struct summary *summary);

#endif

/* How figures look: templates/style.json. The defaults are those of the report. */
#ifndef RENDER_STYLE_H
#define RENDER_STYLE_H

#include "collect/base/error.h"
#include "render/fonts.h"

#include <jansson.h>

struct style {
    json_t *json;
    const char *font_files[FONT_COUNT]; /* paths, or names under the folders of TeX's fonts */
    double size_pt;                     /* of titles and names in figures */
    double report_width_in, one_column_in, two_columns_in, height_in;
};

/* The defaults where `folder` has no style.json. */
int style_read(const char *folder, struct style *style, struct error *error);
void style_free(struct style *style);

#endif

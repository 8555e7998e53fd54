#include "render/style.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <stdlib.h>
#include <string.h>

#define STYLE_SCHEMA "cleanslate.style/1"

static int read_fields(const char *path, struct style *style, struct error *error)
{
    const char *schema;
    const struct json_field fields[] = {
        {"schema", JSON_FIELD_STRING, &schema, true, 0, 0},
        {"text_font", JSON_FIELD_STRING, &style->font_files[FONT_TEXT], false, 0, 0},
        {"symbol_font", JSON_FIELD_STRING, &style->font_files[FONT_SYMBOLS], false, 0, 0},
        {"size_pt", JSON_FIELD_DOUBLE, &style->size_pt, false, 4, 24},
        {"report_width_in", JSON_FIELD_DOUBLE, &style->report_width_in, false, 2, 40},
        {"one_column_in", JSON_FIELD_DOUBLE, &style->one_column_in, false, 2, 40},
        {"two_columns_in", JSON_FIELD_DOUBLE, &style->two_columns_in, false, 2, 40},
        {"height_in", JSON_FIELD_DOUBLE, &style->height_in, false, 2, 60},
        {0},
    };
    if (json_read_fields(style->json, path, fields, JSON_UNKNOWN_KEYS_REFUSED, error))
        return -1;
    return strcmp(schema, STYLE_SCHEMA) == 0
               ? 0
               : fail(error, "%s: schema \"%s\" is not \"%s\"", path, schema, STYLE_SCHEMA);
}

int style_read(const char *folder, struct style *style, struct error *error)
{
    *style = (struct style){
        .font_files = {[FONT_TEXT] = "lm/lmroman10-regular.otf", [FONT_SYMBOLS] = "lm-math/latinmodern-math.otf"},
        .size_pt = 8.5,
        .report_width_in = 6.3,
        .one_column_in = 3.3,
        .two_columns_in = 6.9,
        .height_in = 8.6,
    };
    char *path = file_join(folder, "style.json");
    int result = 0;
    if (file_exists(path)) {
        style->json = json_read_file(path, error);
        result = style->json ? read_fields(path, style, error) : -1;
    }
    free(path);
    if (result)
        style_free(style);
    return result;
}

void style_free(struct style *style)
{
    json_decref(style->json);
    *style = (struct style){0};
}

#include "render/fonts.h"

#include "collect/base/file.h"

#include <cairo-ft.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A loaded file. cairo keeps the one that it draws with in caches of its own, so that is given back by cairo's
 * callback; glyphs are looked up in another, because loading a glyph behind cairo's back changes what cairo measures
 * next. */
struct font_file {
    FT_Library library;
    FT_Face face;
};

struct fonts {
    struct font_file *lookup[FONT_COUNT];
    cairo_font_face_t *faces[FONT_COUNT];
};

static const char *const folders[] = {
    "/usr/share/texmf/fonts/opentype/public",
    "/usr/share/texlive/texmf-dist/fonts/opentype/public",
    "/usr/share/texmf-dist/fonts/opentype/public",
    "/usr/local/share/texmf/fonts/opentype/public",
};

static void font_file_free(void *pointer)
{
    struct font_file *file = pointer;
    if (file->face)
        FT_Done_Face(file->face);
    FT_Done_FreeType(file->library);
    free(file);
}

static struct font_file *font_file_open(const char *name)
{
    struct font_file *file = xcalloc(1, sizeof *file);
    if (FT_Init_FreeType(&file->library))
        die("FreeType does not start");
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !file->face; i++) {
        char *path = name[0] == '/' ? xstrdup(name) : file_join(folders[i], name);
        if (FT_New_Face(file->library, path, 0, &file->face))
            file->face = NULL;
        free(path);
    }
    if (file->face)
        return file;
    font_file_free(file);
    return NULL;
}

static cairo_font_face_t *make_cairo_face(struct font_file *file)
{
    static const cairo_user_data_key_t key;
    cairo_font_face_t *face = cairo_ft_font_face_create_for_ft_face(file->face, FT_LOAD_NO_HINTING);
    if (cairo_font_face_set_user_data(face, &key, file, font_file_free) != CAIRO_STATUS_SUCCESS)
        die("out of memory");
    return face;
}

struct fonts *fonts_open(const char *const files[FONT_COUNT], struct error *error)
{
    struct fonts *fonts = xcalloc(1, sizeof *fonts);
    for (int i = 0; i < FONT_COUNT; i++) {
        struct font_file *file = font_file_open(files[i]);
        fonts->lookup[i] = file ? font_file_open(files[i]) : NULL;
        if (!fonts->lookup[i]) {
            fail(error, "%s: there is no such font under %s; install fonts-lmodern (make deps)", files[i], folders[0]);
            if (file)
                font_file_free(file);
            fonts_close(fonts);
            return NULL;
        }
        fonts->faces[i] = make_cairo_face(file);
    }
    return fonts;
}

void fonts_close(struct fonts *fonts)
{
    if (!fonts)
        return;
    for (int i = 0; i < FONT_COUNT; i++) {
        if (fonts->lookup[i])
            font_file_free(fonts->lookup[i]);
        cairo_font_face_destroy(fonts->faces[i]);
    }
    free(fonts);
}

/* Zero-width marks, which the fonts have as blanks of no width, would vanish as well. */
static bool is_invisible(FT_Face face, unsigned long glyph)
{
    return FT_Load_Glyph(face, (FT_UInt)glyph, FT_LOAD_NO_SCALE) == 0 && face->glyph->outline.n_points == 0 &&
           face->glyph->advance.x == 0;
}

int fonts_find(const struct fonts *fonts, uint32_t point, unsigned long *glyph)
{
    for (int i = 0; i < FONT_COUNT; i++) {
        *glyph = FT_Get_Char_Index(fonts->lookup[i]->face, point);
        if (*glyph && !is_invisible(fonts->lookup[i]->face, *glyph))
            return i;
    }
    return -1;
}

char *fonts_printable(const struct fonts *fonts, const char *text)
{
    size_t size = strlen(text), used = 0;
    char *printable = xmalloc(size * 8 + 1); /* "U+10FFFF" is what 4 bytes can become */
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &point);
        if (length <= 0) {
            point = 0xFFFD;
            length = 1;
        }
        unsigned long glyph;
        if (point >= 0x20 && fonts_find(fonts, (uint32_t)point, &glyph) >= 0 && point != 0xFFFD) {
            memcpy(printable + used, text + at, (size_t)length);
            used += (size_t)length;
        } else {
            used += (size_t)sprintf(printable + used, "U+%04X", (unsigned)point);
        }
        at += (size_t)length;
    }
    printable[used] = '\0';
    return printable;
}

cairo_font_face_t *fonts_face(const struct fonts *fonts, enum font font)
{
    return fonts->faces[font];
}

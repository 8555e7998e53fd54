#include "render/fonts.h"

#include "collect/base/file.h"

#include <cairo-ft.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* cairo keeps faces in caches of its own, so each is given back by cairo's callback, with a library of its own. */
struct font_file {
    FT_Library library;
    FT_Face face;
};

struct fonts {
    struct font_file *files[FONT_COUNT];
    cairo_font_face_t *faces[FONT_COUNT];
};

static const char *const folders[] = {
    "/usr/share/texmf/fonts/opentype/public",
    "/usr/share/texlive/texmf-dist/fonts/opentype/public",
    "/usr/share/texmf-dist/fonts/opentype/public",
    "/usr/local/share/texmf/fonts/opentype/public",
};

static const char *const file_names[FONT_COUNT] = {
    [FONT_TEXT] = "lm/lmroman10-regular.otf",
    [FONT_SYMBOLS] = "lm-math/latinmodern-math.otf",
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
        char *path = file_join(folders[i], name);
        if (FT_New_Face(file->library, path, 0, &file->face))
            file->face = NULL;
        free(path);
    }
    if (file->face)
        return file;
    font_file_free(file);
    return NULL;
}

struct fonts *fonts_open(struct error *error)
{
    static const cairo_user_data_key_t key;
    struct fonts *fonts = xcalloc(1, sizeof *fonts);
    for (int i = 0; i < FONT_COUNT; i++) {
        struct font_file *file = font_file_open(file_names[i]);
        if (!file) {
            fail(error, "%s/%s: not found; install fonts-lmodern (make deps)", folders[0], file_names[i]);
            fonts_close(fonts);
            return NULL;
        }
        fonts->files[i] = file;
        fonts->faces[i] = cairo_ft_font_face_create_for_ft_face(file->face, FT_LOAD_NO_HINTING);
        if (cairo_font_face_set_user_data(fonts->faces[i], &key, file, font_file_free) != CAIRO_STATUS_SUCCESS)
            die("out of memory");
    }
    return fonts;
}

void fonts_close(struct fonts *fonts)
{
    if (!fonts)
        return;
    for (int i = 0; i < FONT_COUNT; i++)
        cairo_font_face_destroy(fonts->faces[i]);
    free(fonts);
}

int fonts_find(const struct fonts *fonts, uint32_t point, unsigned long *glyph)
{
    for (int i = 0; i < FONT_COUNT; i++) {
        *glyph = FT_Get_Char_Index(fonts->files[i]->face, point);
        if (*glyph)
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

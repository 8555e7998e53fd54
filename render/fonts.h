/* Fonts of figures: one for text and one for the symbols that it lacks, Latin Modern unless the style says otherwise,
 * loaded from their files.
 *
 * Latin Modern draws a blank for a letter that it lacks. Here a letter is looked up before it is drawn, and what
 * neither font has becomes "U+65E5". */
#ifndef RENDER_FONTS_H
#define RENDER_FONTS_H

#include "collect/base/error.h"

#include <cairo.h>
#include <stdint.h>

enum font { FONT_TEXT, FONT_SYMBOLS, FONT_COUNT };

struct fonts;

/* Finds and loads both files, paths or names under the folders of TeX's fonts. NULL and one line that names the package
 * where one is not installed. */
struct fonts *fonts_open(const char *const files[FONT_COUNT], struct error *error);
void fonts_close(struct fonts *fonts);

/* The first font with a glyph for this code point, and the glyph's index; -1 where no font has one. */
int fonts_find(const struct fonts *fonts, uint32_t point, unsigned long *glyph);

/* Text in which every letter has a glyph: those that have none are written "U+XXXX". free() it. */
char *fonts_printable(const struct fonts *fonts, const char *text);

/* Borrowed. */
cairo_font_face_t *fonts_face(const struct fonts *fonts, enum font font);

#endif

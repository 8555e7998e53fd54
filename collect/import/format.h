/* The formats of foreign result files: one table (formats.c), each recognised by keys that its records have. */
#ifndef COLLECT_IMPORT_FORMAT_H
#define COLLECT_IMPORT_FORMAT_H

#include "collect/import/imported.h"

/* Reads one record, an object of the document's. What it cannot use it leaves in `rest`. */
typedef void format_read_record(const struct document *document, const json_t *record, struct imports *imports);

/* Reads all records of the document together: those of requests, or of a log. */
typedef void format_read_records(const struct document *document, const json_t *records, struct imports *imports);

struct format {
    const char *name;    /* of the tool, as reports print it */
    const char *keys[6]; /* all of them are in a record of the format; NULL ends the list */
    format_read_record *read_record;
    format_read_records *read_records; /* one of the two */
    const char *of_run; /* files of this tool in one folder speak of one run where the names are equal; NULL: not so */
};

/* Reads what the document says, and marks it with its format. Records of other kinds are passed over, *passed_over of
 * them. -1 where no format fits. */
int format_read(const struct document *document, struct imports *imports, int *passed_over, struct error *error);

/* All formats by name, for messages and help; free() it. */
char *format_list(void);

/* serving.c */
format_read_record serving_read_vllm, serving_read_sglang;
/* offline.c: tools that measure without a server's load */
format_read_record offline_read_one_batch, offline_read_speculative, offline_read_specforge, offline_read_lucebox;
/* llama_bench.c */
format_read_record llama_bench_read, llama_bench_read_markdown;
/* aiperf.c */
format_read_record aiperf_read_export;
format_read_records aiperf_read_requests;
/* guidellm.c */
format_read_record guidellm_read;
/* inferencex.c */
format_read_record inferencex_read, inferencex_read_synthetic;
/* mlperf.c */
format_read_record mlperf_read_summary;
format_read_records mlperf_read_log;
/* spec_bench.c, jetspec.c, specdec_bench.c */
format_read_records spec_bench_read, jetspec_read;
format_read_record specdec_bench_read_acceptance, specdec_bench_read_timing;

#endif

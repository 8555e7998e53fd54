/* Numbers out of a Prometheus text (exposition format 0.0.4): servers' counters and gauges. */
#ifndef COLLECT_SERVER_METRICS_H
#define COLLECT_SERVER_METRICS_H

/* The sum over all labels (one for each rank that serves) of the metric of exactly this name, or of the name with
 * "_total" behind it. NaN where there is none, or name is NULL. */
double metrics_sum(const char *text, const char *name);

/* The number that the metric of this name has in a label: name{label="16"}. NaN where there is none, or name is NULL.
 */
double metrics_label(const char *text, const char *name, const char *label);

#endif

# cleanslate: collect, analyze, render. `make help` lists the targets.

MODE ?= release
PLAN ?= data/plans/demo.json
RUNS ?= data/runs
FUZZ_SECONDS ?= 60
MUTATIONS ?= 100000

# Debian 12's packages.
PACKAGES_BUILD = gcc libc6-dev make pkg-config libjansson-dev libgsl-dev libcairo2-dev libfreetype-dev libcurl4-openssl-dev \
	libpcre2-dev libutf8proc-dev libdnnl-dev libssl-dev zlib1g-dev libzstd-dev
PACKAGES_REPORT = texlive-latex-base texlive-latex-recommended texlive-science texlive-fonts-recommended lmodern fonts-lmodern
PACKAGES_TEST = libcmocka-dev poppler-utils libmicrohttpd-dev
PACKAGES_FUZZ = clang libclang-rt-14-dev

.DEFAULT_GOAL := build
.SECONDARY:
.PHONY: help deps build report figures test test-gpu fuzz mutations bench format lint clean always

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  variables:      MODE=release|debug  PLAN=$(PLAN)  RUNS=$(RUNS)  FUZZ_SECONDS=$(FUZZ_SECONDS)  MUTATIONS=$(MUTATIONS)"

deps: ## install what building, reports and tests need (Debian 12; as root or by sudo)
	@tests/deps.sh $(PACKAGES_BUILD) $(PACKAGES_REPORT) $(PACKAGES_TEST)

# --- building: everything under out/, debug builds in out/debug/ --------------------------------------------------------

ifeq ($(MODE),debug)
OUT = out/debug
MODE_FLAGS = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DCLEANSLATE_DEBUG
else ifeq ($(MODE),fuzz)
OUT = out/fuzz
CC = clang
MODE_FLAGS = -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPENMP =
else
OUT = out
MODE_FLAGS = -O2 -g
endif
OPENMP ?= -fopenmp

LIBRARIES = jansson gsl cairo-pdf cairo-ft freetype2 libcurl libpcre2-8 libcrypto zlib libzstd
PKG_FLAGS = $(shell pkg-config --cflags $(LIBRARIES))
PKG_LIBS = $(shell pkg-config --libs $(LIBRARIES))

# The CUDA backend is built where nvcc and cuBLASLt are; CUDA= builds without.
NVCC := $(firstword $(realpath $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH))) /usr/local/cuda/bin/nvcc)))
CUDA ?= $(NVCC:%/bin/nvcc=%)
ifneq ($(and $(CUDA),$(wildcard $(CUDA)/include/cublasLt.h)),)
CUDA_FLAGS = -DCLEANSLATE_CUDA -isystem $(CUDA)/include
CUDA_LIBS = -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64 -lcublasLt -lcudart_static -lpthread -ldl -lrt
CUDA_SOURCES = $(if $(filter fuzz,$(MODE)),,$(shell find collect -name '*.cu'))
endif
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -I. -Xcompiler -Wall,-Wextra,-Wshadow,-fno-threadsafe-statics,-fno-exceptions \
	$(if $(NVCC_FLAGS_OWN),,-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]) $(if $(WERROR),-Werror all-warnings)

CFLAGS_ALL = -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wvla -Wno-missing-field-initializers $(WERROR) $(OPENMP) $(MODE_FLAGS) -I. $(PKG_FLAGS) $(CUDA_FLAGS) $(CFLAGS)
LDLIBS_ALL = -Wl,--as-needed $(PKG_LIBS) -lutf8proc -ldnnl $(OPENMP) -lm $(LDLIBS)

MAINS = collect/collect.c analyze/analyze.c render/render.c
# Fuzzers read files, and have no backend: clang lacks what gcc offers its loops.
BACKENDS = $(if $(filter fuzz,$(MODE)),collect/engine/backend.c collect/engine/cpu/% collect/engine/cuda/%)
SOURCES = $(filter-out $(MAINS) $(BACKENDS) $(if $(CUDA_FLAGS),,collect/engine/cuda/%),$(shell find collect analyze render -name '*.c' 2>/dev/null))
TEST_SOURCES = $(shell find tests -name 'test_*.c' -not -path 'tests/gpu/*')
GPU_TEST_SOURCES = $(wildcard tests/gpu/test_*.c)
# They stand in for functions of libraries, in the programs that ask for them and no others.
STAND_INS = tests/fault.c tests/collect/fake_nvml.c
TEST_HELPERS = $(filter-out $(TEST_SOURCES) $(GPU_TEST_SOURCES) $(STAND_INS),$(shell find tests -name '*.c'))

object = $(patsubst %.c,$(OUT)/obj/%.o,$(1))
PROGRAMS = $(OUT)/bin/collect $(OUT)/bin/analyze $(OUT)/bin/render
TEST_PROGRAMS = $(patsubst %.c,$(OUT)/bin/%,$(TEST_SOURCES))
GPU_TEST_PROGRAMS = $(patsubst %.c,$(OUT)/bin/%,$(GPU_TEST_SOURCES)) $(addprefix $(OUT)/bin/tests/engine/,test_golden test_hybrid test_drift)
ARCHIVE = $(OUT)/obj/cleanslate.a

build: $(PROGRAMS) ## build the three programs into out/bin/ (MODE=debug: out/debug/bin/)

# What was said when something was last made stands in a file, so that what depends on it is made anew when it is another:
# flags (a CUDA Toolkit has come), files (one is gone), the run that a report is of (RUNS is elsewhere). "make -j deps test"
# compiles nothing before the packages are there.
FLAGS = $(CC) $(CFLAGS_ALL) $(LDLIBS_ALL) $(CUDA) $(CUDA_LIBS) $(NVCC_FLAGS)
MEMBERS = $(call object,$(SOURCES) $(TEST_HELPERS)) $(CUDA_SOURCES:%=$(OUT)/obj/%.o)
$(OUT)/obj/flags: SAID = $(FLAGS)
$(OUT)/obj/members: SAID = $(MEMBERS)
out/reports/$(NAME)/run: SAID = $(RUNS)/$(NAME)
$(OUT)/obj/flags $(OUT)/obj/members out/reports/$(NAME)/run: always | $(filter deps,$(MAKECMDGOALS))
	@mkdir -p $(@D)
	@echo '$(SAID)' | cmp -s - $@ || echo '$(SAID)' >$@

$(OUT)/obj/%.o: %.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(OUT)/obj/%.cu.o: %.cu $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(CUDA)/bin/nvcc $(NVCC_FLAGS) $(NVCC_FLAGS_OWN) -MMD -MP -c $< -o $@

# Products of warpgroups are Hopper's alone; what blocks of a cluster send each other begins with it.
$(patsubst %,$(OUT)/obj/collect/engine/cuda/%.cu.o,skinny attention_groups attention_near): NVCC_FLAGS_OWN = -gencode arch=compute_90a,code=sm_90a
$(patsubst %,$(OUT)/obj/collect/engine/cuda/%_half.cu.o,attention mlp): NVCC_FLAGS_OWN = \
	-gencode arch=compute_90,code=[sm_90,compute_90]

$(ARCHIVE): $(MEMBERS) $(OUT)/obj/members
	@rm -f $@
	$(AR) rcs $@ $(MEMBERS)

$(OUT)/bin/collect: $(OUT)/obj/collect/collect.o $(ARCHIVE)
$(OUT)/bin/analyze: $(OUT)/obj/analyze/analyze.o $(ARCHIVE)
$(OUT)/bin/render: $(OUT)/obj/render/render.o $(ARCHIVE)
$(OUT)/bin/collect: LDLIBS_OWN = $(CUDA_LIBS)
$(PROGRAMS):
	@mkdir -p $(@D)
	$(CC) $(MODE_FLAGS) $^ $(LDLIBS_ALL) $(LDLIBS_OWN) -o $@

$(OUT)/bin/tests/%: $(OUT)/obj/tests/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(MODE_FLAGS) $^ $(LDLIBS_ALL) $(CUDA_LIBS) -lcmocka -lmicrohttpd -o $@

# What stands in for NVIDIA's management library where telemetry is tested.
$(OUT)/bin/tests/collect/test_telemetry $(OUT)/bin/tests/server/test_gpus: | $(OUT)/bin/tests/fake_nvml.so
$(OUT)/bin/tests/fake_nvml.so: tests/collect/fake_nvml.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra $(WERROR) -O1 -fPIC -shared $< -o $@

$(OUT)/bin/tests/collect/test_faults $(OUT)/bin/tests/collect/test_stage: $(call object,tests/fault.c)

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)

# --- a report: each stage runs where what it reads is newer than what it wrote ------------------------------------------

report: build ## measure what PLAN asks for and the run lacks, then statistics, then the PDF
	@name=$$($(OUT)/bin/collect plan-name "$(PLAN)") && \
	$(OUT)/bin/collect run --plan "$(PLAN)" --runs "$(RUNS)" && \
	$(MAKE) --no-print-directory out/reports/$$name/report.pdf NAME=$$name

figures: build ## figures at the widths of one and two columns, tables and macros for a paper, from PLAN's run: out/reports/NAME/parts/
	@name=$$($(OUT)/bin/collect plan-name "$(PLAN)") && \
	{ [ -e "$(RUNS)/$$name/ledger.jsonl" ] || { echo "$(RUNS)/$$name: holds no run as yet; \`make report\` measures it" >&2; false; }; } && \
	$(MAKE) --no-print-directory out/reports/$$name/summary.json NAME=$$name && \
	$(OUT)/bin/render out/reports/$$name/summary.json --out out/reports/$$name/parts --parts

ifdef NAME
out/reports/$(NAME)/summary.json: $(RUNS)/$(NAME)/ledger.jsonl $(wildcard $(RUNS)/$(NAME)/plan*.json) out/reports/$(NAME)/run $(OUT)/bin/analyze
	@mkdir -p $(@D)
	$(OUT)/bin/analyze $(RUNS)/$(NAME) --out $@

out/reports/$(NAME)/report.pdf: out/reports/$(NAME)/summary.json $(wildcard templates/*) $(OUT)/bin/render
	$(OUT)/bin/render $< --out $(@D)
endif

# --- checks -------------------------------------------------------------------------------------------------------------

# Seconds for a program. Under the sanitizers, on a machine where pages are slow to come, some take ten minutes.
TEST_LIMIT = $(if $(filter debug,$(MODE)),1800,600)
test: build $(TEST_PROGRAMS) ## build and run all tests (MODE=debug: with address and undefined-behaviour sanitizers)
	@TEST_TIMEOUT=$${TEST_TIMEOUT:-$(TEST_LIMIT)} tests/run.sh $(sort $(TEST_PROGRAMS))

test-gpu: build $(if $(CUDA_FLAGS),$(GPU_TEST_PROGRAMS)) ## run the tests of the CUDA backend on this machine's GPU
	@if [ -n "$(CUDA_FLAGS)" ]; then kept=$$(mktemp -d) && trap 'rm -r "$$kept"' EXIT && \
	CLEANSLATE_BACKEND=cuda CLEANSLATE_ALGORITHMS=$$kept TEST_JOBS=1 tests/run.sh $(GPU_TEST_PROGRAMS); \
	else echo "SKIPPED: this build has no CUDA backend; install nvcc and cuBLASLt, or say where they are by CUDA=/path"; fi

fuzz: ## run libFuzzer on each reader of files, FUZZ_SECONDS each; new inputs and findings stay in out/fuzz/ (needs clang)
	@command -v clang >/dev/null || { echo "make fuzz: no clang here; install $(PACKAGES_FUZZ)" >&2; exit 1; }
	@$(MAKE) --no-print-directory MODE=fuzz fuzzers
	@tests/fuzz/run.sh $(FUZZ_SECONDS) out/fuzz

MUTATED = $(patsubst %,out/debug/bin/tests/fuzz/test_%,attempt ledger record)

mutations: ## read MUTATIONS mutated attempts and ledgers under the sanitizers
	@$(MAKE) --no-print-directory MODE=debug $(MUTATED)
	@CLEANSLATE_MUTATIONS=$(MUTATIONS) TEST_TIMEOUT=3600 tests/run.sh $(MUTATED)

ifeq ($(MODE),fuzz)
.PHONY: fuzzers
fuzzers: $(patsubst tests/fuzz/test_%.c,$(OUT)/bin/%,$(wildcard tests/fuzz/test_*.c))

$(OUT)/bin/%: $(OUT)/obj/tests/fuzz/test_%.o $(OUT)/obj/tests/fuzz/mutator.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(MODE_FLAGS) -fsanitize=fuzzer $^ $(LDLIBS_ALL) -lcmocka -lmicrohttpd -o $@
endif

bench: $(OUT)/bin/collect ## time the engine on the demo model: each stage beside its matrix products alone
	$(OUT)/bin/collect bench --target data/models/demo/target --drafter data/models/demo/drafter --context 128

FORMATTED = $(shell find collect analyze render tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')

format: ## bring all sources into the house's format
	clang-format -i $(FORMATTED)

# Not asked of cppcheck: nullPointer, which does not see that json_read_fields() fills what a table of fields points at, and
# uninitvar, ctuuninitvar and invalidFunctionArg, which take it for possible that a loop over a model's rows or a plan's blocks runs never.
lint: ## check the format, and look for mistakes by cppcheck
	clang-format --dry-run -Werror $(FORMATTED)
	cppcheck --quiet --std=c11 -j $(shell nproc) -I. --enable=warning,portability,performance --error-exitcode=1 \
		--inline-suppr --library=tests/cppcheck.cfg --suppress=missingIncludeSystem --suppress=nullPointer \
		--suppress=uninitvar --suppress=invalidFunctionArg collect analyze render tests

clean: ## remove out/ (never data/runs/)
	rm -rf out

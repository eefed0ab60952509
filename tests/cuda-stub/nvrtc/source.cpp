#include "source.h"

#include <cctype>

namespace {

bool name_start(char c) { return isalpha((unsigned char)c) || c == '_'; }

bool name_part(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool starts_with(const std::string &text, const char *prefix) { return text.rfind(prefix, 0) == 0; }

size_t skip_space(const std::string &text, size_t at) {
    while (at < text.size() && isspace((unsigned char)text[at])) {
        ++at;
    }
    return at;
}

std::string name_at(const std::string &text, size_t at) {
    size_t end = at;
    while (end < text.size() && name_part(text[end])) {
        ++end;
    }
    return text.substr(at, end - at);
}

// The place behind the bracket that closes the one at `at`.
size_t behind_bracket(const std::string &text, size_t at) {
    int depth = 0;
    for (; at < text.size(); ++at) {
        if (text[at] == '(') {
            ++depth;
        } else if (text[at] == ')' && --depth == 0) {
            return at + 1;
        }
    }
    return at;
}

bool takes_brackets(const std::string &name) {
    return name == "__launch_bounds__" || name == "__attribute__" || name == "__align__" || name == "alignas" ||
           name == "__cluster_dims__" || name == "__maxnreg__" || name == "decltype";
}

// Whether a thread that calls this may wait for another, so that a plain loop over the threads will not do.
bool needs_fibres(const std::string &name) {
    static const char *const prefixes[] = {"__sync", "__shfl", "__ballot", "__any_sync", "__all_sync", "__activemask",
                                           "__threadfence", "__nanosleep"};
    for (const char *prefix : prefixes) {
        if (starts_with(name, prefix)) {
            return true;
        }
    }
    return name == "volatile" || name == "atomicCAS" || name == "atomicExch";
}

// Removes the words that say where a variable lies and how it is aligned.
std::string plain_declaration(const std::string &text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        if (!name_start(text[i])) {
            out += text[i++];
            continue;
        }
        const std::string name = name_at(text, i);
        i += name.size();
        if (takes_brackets(name)) {
            i = behind_bracket(text, skip_space(text, i));
        } else if (name != "extern" && name != "__shared__" && name != "static") {
            out += name;
        }
    }
    return out;
}

class Rewriter {
  public:
    Rewriter(Source *result, const std::string &text, uint64_t drop_barrier)
        : result(result), in(text), drop_barrier(drop_barrier) {}

    void run() {
        while (at < in.size()) {
            const char c = in[at];
            if (c == '#' && at_line_start()) {
                copy_until(in.find('\n', at));
            } else if (c == '"' || c == '\'') {
                copy_literal(c);
            } else if (name_start(c)) {
                word(name_at(in, at));
            } else if (isdigit((unsigned char)c)) {
                copy_until(end_of_number());
            } else {
                symbol(c);
                out() += c;
                ++at;
            }
        }
    }

  private:
    Source *result;
    const std::string &in;
    uint64_t drop_barrier;
    size_t at = 0;
    std::string before, before_that, before_both;  // the words or symbols that came last
    int depth = 0;                                 // of braces, those of extern "C" left out
    int c_depth = 0;                               // open braces of extern "C"
    std::string pending;                           // a kernel whose body comes next
    std::string kernel;                            // whose body this is
    std::vector<bool> brace_is_c;

    std::string &out() { return result->text; }

    bool at_line_start() const { return at == 0 || in[at - 1] == '\n'; }

    void remember(const std::string &token) {
        before_both = before_that;
        before_that = before;
        before = token;
    }

    void copy_until(size_t end) {
        end = end == std::string::npos ? in.size() : end;
        out().append(in, at, end - at);
        at = end;
    }

    size_t end_of_number() const {
        size_t end = at;
        while (end < in.size() && (name_part(in[end]) || in[end] == '.')) {
            ++end;
        }
        return end;
    }

    void copy_literal(char quote) {
        size_t end = at + 1;
        while (end < in.size() && in[end] != quote) {
            end += in[end] == '\\' ? 2 : 1;
        }
        remember(in.substr(at, end + 1 - at));
        copy_until(end + 1);
    }

    void symbol(char c) {
        if (isspace((unsigned char)c)) {
            return;
        }
        if (c == '{') {
            const bool of_c = before == "\"C\"" && before_that == "extern";
            brace_is_c.push_back(of_c);
            (of_c ? c_depth : depth)++;
            if (!of_c && !pending.empty()) {
                kernel = pending;
                pending.clear();
            }
        } else if (c == '}' && !brace_is_c.empty()) {
            (brace_is_c.back() ? c_depth : depth)--;
            brace_is_c.pop_back();
            if (depth == 0) {
                kernel.clear();
            }
        } else if (c == ';') {
            pending.clear();  // it was a declaration
        }
        remember(std::string(1, c));
    }

    void word(const std::string &name) {
        if (needs_fibres(name)) {
            result->fibres = true;
        }
        if (name == "extern" && dynamic_shared()) {
            return;
        }
        if (name == "__shared__") {
            out() += kernel.empty() ? "CD_SHARED(\"cd_shared\")" : "CD_SHARED(\"cd_shared_" + kernel + "\")";
            at += name.size();
            remember(name);
            return;
        }
        if (name == "static" && in.compare(skip_space(in, at + name.size()), 10, "__shared__") == 0) {
            at += name.size();
            return;
        }
        if (name == "__syncthreads" && barrier(name)) {
            return;
        }
        if (name == "__global__") {
            find_kernel();
        } else if ((name == "__constant__" || name == "__device__") && depth == 0) {
            find_global();
        }
        copy_until(at + name.size());
        remember(name);
    }

    // extern __shared__ T name[]; becomes a pointer to the file's dynamic shared memory.
    bool dynamic_shared() {
        const size_t next = skip_space(in, at + 6);
        if (in.compare(next, 10, "__shared__") != 0) {
            return false;
        }
        const size_t end = in.find(';', at);
        if (end == std::string::npos) {
            return false;
        }
        const std::string plain = plain_declaration(in.substr(at, end - at));
        const size_t bracket = plain.find('[');
        size_t name_end = bracket == std::string::npos ? plain.size() : bracket;
        while (name_end > 0 && isspace((unsigned char)plain[name_end - 1])) {
            --name_end;
        }
        size_t name_from = name_end;
        while (name_from > 0 && name_part(plain[name_from - 1])) {
            --name_from;
        }
        const std::string type = plain.substr(0, name_from);
        out() += type + "*const " + plain.substr(name_from, name_end - name_from) + " = (" + type +
                 "*)cd_dynamic_shared";
        at = end;
        return true;
    }

    bool barrier(const std::string &name) {
        const size_t bracket = skip_space(in, at + name.size());
        if (bracket >= in.size() || in[bracket] != '(' || ++result->barriers != drop_barrier) {
            return false;
        }
        out() += "((void)0)";
        at = behind_bracket(in, bracket);
        return true;
    }

    void find_kernel() {
        Kernel found;
        found.max_threads = "1024";
        found.c_name = c_depth > 0 || (before == "\"C\"" && before_that == "extern") ||
                       (before_that == "\"C\"" && before_both == "extern");
        found.is_template = before == ">" || before_that == ">";
        size_t i = at + 10;
        while (i < in.size() && in[i] != ';' && in[i] != '{') {
            if (!name_start(in[i])) {
                ++i;
                continue;
            }
            const std::string name = name_at(in, i);
            i = skip_space(in, i + name.size());
            if (i >= in.size() || in[i] != '(') {
                continue;
            }
            const size_t end = behind_bracket(in, i);
            if (name == "__launch_bounds__" && !found.is_template) {
                const std::string inner = in.substr(i + 1, end - i - 2);
                found.max_threads = inner.substr(0, inner.find(','));
            }
            if (takes_brackets(name)) {
                i = end;
                continue;
            }
            found.name = name;
            i = skip_space(in, end);
            break;
        }
        if (found.name.empty() || i >= in.size() || in[i] != '{') {
            return;
        }
        pending = found.name;
        result->kernels.push_back(found);
    }

    void find_global() {
        std::string last;
        for (size_t i = at; i < in.size();) {
            if (name_start(in[i])) {
                const std::string name = name_at(in, i);
                i += name.size();
                if (takes_brackets(name)) {
                    i = behind_bracket(in, skip_space(in, i));
                } else {
                    last = name;
                }
                continue;
            }
            if (in[i] == '(' || in[i] == '{') {
                return;
            }
            if (in[i] == ';' || in[i] == '=' || in[i] == '[') {
                for (const std::string &known : result->globals) {
                    if (known == last) {
                        return;  // both __device__ and __constant__, say
                    }
                }
                result->globals.push_back(last);
                return;
            }
            ++i;
        }
    }
};

std::string without_space(const std::string &text) {
    std::string out;
    for (char c : text) {
        if (!isspace((unsigned char)c)) {
            out += c;
        }
    }
    return out;
}

}  // namespace

Source::Source(const std::string &preprocessed, uint64_t drop_barrier) {
    Rewriter(this, preprocessed, drop_barrier).run();
}

std::string Source::table(const std::vector<std::string> &expressions, std::vector<std::string> *lowered,
                          bool checked) const {
    std::string sections;
    std::string functions;
    std::string rows;
    unsigned count = 0;
    auto add = [&](const std::string &name, const std::string &function, const std::string &base,
                   const std::string &max_threads) {
        const std::string alias = "cd_function_" + std::to_string(count++);
        functions += "using " + alias + " = cd_entry<&" + function + ">;\n";
        rows += "{\"" + name + "\", &" + alias + "::run, (unsigned)(" + max_threads + "), " + alias + "::count, " +
                alias + "::parameters.offsets, " + alias + "::parameters.sizes, __start_cd_shared_" + base +
                ", __stop_cd_shared_" + base + "},\n";
    };
    for (const Kernel &kernel : kernels) {
        sections += "CD_SECTION_OF(" + kernel.name + ")\n";
        if (kernel.c_name) {
            add(kernel.name, kernel.name, kernel.name, kernel.max_threads);
        }
    }
    for (const std::string &expression : expressions) {
        std::string plain = without_space(expression);
        plain = plain.substr(plain.rfind('&') == 0 ? 1 : 0);
        const std::string base = plain.substr(0, plain.find('<'));
        const Kernel *known = nullptr;
        for (const Kernel &kernel : kernels) {
            known = kernel.name == base ? &kernel : known;
        }
        if (known && known->c_name) {
            lowered->push_back(base);
            continue;
        }
        if (!known) {
            sections += "CD_SECTION_OF(" + base + ")\n";
        }
        lowered->push_back("_Zcd" + std::to_string(lowered->size()) + base);
        add(lowered->back(), plain, base, known ? known->max_threads : "1024");
    }
    std::string out = "\n}\n# 1 \"table of kernels\"\n" + sections + functions;
    out += "static const cd_kernel cd_kernels[] = {\n" + rows + "{}};\n";
    out += "static const cd_global cd_globals[] = {\n";
    for (const std::string &global : globals) {
        out += "CD_GLOBAL(" + global + ")\n";
    }
    out += "{}};\n";
    out += "CD_MODULE(" + std::to_string(fibres) + ", " + std::to_string(checked) + ", cd_kernels, " +
           std::to_string(count) + ", cd_globals, " + std::to_string(globals.size()) + ")\n";
    return out;
}

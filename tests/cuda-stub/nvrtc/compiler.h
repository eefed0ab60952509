// Runs the C++ compiler, and keeps what it made in the cache.
#pragma once
#include <string>
#include <vector>

struct Options {
    std::vector<std::string> defines;   // -D and -I, as g++ takes them
    std::string standard = "c++17";
    int arch = 0;
    bool real_arch = false;             // sm_XX, not compute_XX
};

struct Request {
    std::string name;
    std::string source;
    std::vector<std::pair<std::string, std::string>> headers;  // name, text
    std::vector<std::string> expressions;
    Options options;
};

struct Outcome {
    bool good = false;
    std::string library;  // its name in the cache
    std::string log;
    std::vector<std::string> lowered;  // of the expressions
};

Outcome compile(const Request &request);

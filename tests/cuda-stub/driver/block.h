// Runs a launch: block after block, the threads of a block as fibres.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "module.h"

struct Launch {
    std::shared_ptr<Image> image;
    const cd_kernel *kernel;
    std::string name;
    cd_uint3 grid;
    cd_uint3 block;
    unsigned dynamic_shared;
    std::vector<unsigned char> parameters;
};

void start_blocks();
// Gives an error code of the driver API, and says where and why.
int run_launch(const Launch &launch);

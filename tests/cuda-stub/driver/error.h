// The error codes of the CUDA driver API that the stub uses.
#pragma once

enum Error : int {
    Success = 0,
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    NoDevice = 100,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    NoBinaryForGpu = 209,
    InvalidPtx = 218,
    FileNotFound = 301,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchOutOfResources = 701,
    LaunchTimeout = 702,
    PrimaryContextActive = 708,
    ContextIsDestroyed = 709,
    Assert = 710,
    HostMemoryAlreadyRegistered = 712,
    HostMemoryNotRegistered = 713,
    MisalignedAddress = 716,
    LaunchFailed = 719,
    NotPermitted = 800,
    NotSupported = 801,
    CaptureUnsupported = 900,
    CaptureInvalidated = 901,
    CaptureUnmatched = 903,
    CaptureIsolation = 905,
    CaptureImplicit = 906,
    CapturedEvent = 907,
    CaptureWrongThread = 908,
    Unknown = 999,
};

// Null for a code that CUDA does not have, or that this stub never returns.
const char *error_name(int code);
const char *error_description(int code);

// Whether the error leaves the context unusable, as NVIDIA documents for it.
bool is_sticky(int code);

// The public header and its test program as C++17.
#include "client.c"

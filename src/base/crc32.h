/* base/crc32.h - CRC-32 as in zlib and Python's zlib.crc32 (polynomial 0xEDB88320, reflected), over page
 * records. */
#ifndef PL_BASE_CRC32_H
#define PL_BASE_CRC32_H
#include <stddef.h>
#include <stdint.h>
uint32_t pl_crc32(const void *bytes, size_t count);
#endif

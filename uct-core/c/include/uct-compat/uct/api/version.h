/* The release of UCX whose names this vocabulary has. */
#ifndef UCT_COMPAT_VERSION_H
#define UCT_COMPAT_VERSION_H

#define UCT_VERNO_MAJOR 1
#define UCT_VERNO_MINOR 23
#define UCT_VERNO_PATCH 0
#define UCT_VERNO_STRING "1.23.0"

#define UCT_MINOR_BIT 16ul
#define UCT_MAJOR_BIT 24ul
#define UCT_VERSION(_major, _minor) (((_major) << UCT_MAJOR_BIT) | ((_minor) << UCT_MINOR_BIT))
#define UCT_API UCT_VERSION(1l, 23l)

#endif

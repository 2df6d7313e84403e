// SPDX-License-Identifier: GPL-2.0
/*
 * Takes tracefs away from a kernel that has it, so that a boot meets one that has none:
 * from then on nobody can mount it. A mount that is there stays.
 */
#include <linux/fs.h>
#include <linux/module.h>

static int __init no_tracefs_init(void)
{
	struct file_system_type *type = get_fs_type("tracefs");

	return type ? unregister_filesystem(type) : -ENODEV;
}
module_init(no_tracefs_init);

MODULE_DESCRIPTION("A kernel without tracefs");
MODULE_LICENSE("GPL");

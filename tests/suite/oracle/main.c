/* Without an argument, tells how the types lie; with one, reads images until there are no more, and writes a record of 16 bytes
 * for each expression: its value, then bits that say whether it is a fault (1), wild (2), undefined (4), then the code of its type. */

static int fill(void *to, size_t size)
{
	u8 *at = to;
	while (size) {
		ssize_t n = read(0, at, size);
		if (n <= 0)
			return 0;
		at += n;
		size -= n;
	}
	return 1;
}

static void *arena(u64 at)
{
	return mmap((void *)at, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void one(size_t index, volatile u64 *value, volatile u8 *status, u8 *type)
{
	wild = undefined = 0;
	if (_setjmp(out))
		*status = 1;
	else
		*value = groups[index / GROUP](index % GROUP, type);
	*status |= 2 * wild + 4 * undefined;
}

int main(int argc, char **argv)
{
	static struct { u64 value; u8 status, type, pad[6]; } records[COUNT];
	u64 head[2 + PARAMS];
	if (argc == 1) {
		layout();
		return 0;
	}
	if (arena(KHERE) == MAP_FAILED || arena(UHERE) == MAP_FAILED)
		return 3;
	while (fill(head, sizeof head)) {
		if (!fill((void *)KHERE, ARENA) || !fill((void *)UHERE, ARENA))
			return 4;
		kbase = head[0];
		ubase = head[1];
		arguments(head + 2);
		memset(records, 0, sizeof records);
		for (size_t index = 0; index < COUNT; index++)
			one(index, &records[index].value, &records[index].status, &records[index].type);
		if (fwrite(records, 1, sizeof records, stdout) != sizeof records)
			return 5;
	}
	return 0;
}

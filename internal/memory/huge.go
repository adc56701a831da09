package memory

// hugeBytes is the minimum number of bytes for which huge pages are worth a system call.
const hugeBytes = 1 << 20

// Huge asks the system for huge pages in the memory of b, which must be new: pages that were written to
// stay as they are. Products with few rows read weights as fast as memory allows, and with small pages the
// translation of addresses takes a fifth of that time.
func Huge(b []byte) {
	if len(b) >= hugeBytes {
		adviseHuge(b)
	}
}

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/verify"
)

// A record is one line of the journal, which says how far a run is, so that the next run can
// resume there. The journal is append-only:
//
//	1f3a90bc {"begin":{"version":5,"plan":"…","source":[…]}}
//	77c0de42 {"amax":{"weight":12,"bits":1065353216}}
//	0b5af113 {"done":{"weight":0,"row":4096,"col":0,"sums":"…","name":"…"}}
//	90d1f2a6 {"carried":"tokenizer.json","checksum":12345}
//	e3069283 {"complete":true}
//	5d01c7f4 {"merged":true}
//
// Each line begins with the CRC-32C of its record. The data of a record was synced before the
// record was written. A damaged or incomplete line and all lines after it are dropped: the work
// since the last good record is done again. A power failure leaves such lines where the filesystem
// had not written a page.
type record struct {
	Begin     *beginning `json:"begin,omitempty"`
	Amax      *sweptAmax `json:"amax,omitempty"`
	Done      *doneTiles `json:"done,omitempty"`
	Auxiliary string     `json:"carried,omitempty"`  // a file without weights is written
	Checksum  uint64     `json:"checksum,omitempty"` // of that file
	Complete  bool       `json:"complete,omitempty"` // every file is closed
	Merged    bool       `json:"merged,omitempty"`   // the files of all workers are in the part of worker 0
}

// sweptAmax has the extremes of a weight.
type sweptAmax struct {
	Weight int    `json:"weight"` // in the plan
	Bits   uint32 `json:"bits"`   // of the amax
	NaN    bool   `json:"nan,omitempty"`
}

// doneTiles says that all tiles of a weight before a position, and all weights before it, are on
// the disk. Sums is the state of the measure.Accumulator of the error at that position.
type doneTiles struct {
	Weight int    `json:"weight"` // in the plan
	Row    int    `json:"row"`
	Col    int    `json:"col"`
	Sums   []byte `json:"sums"`

	Written []uint64 `json:"written,omitempty"` // as in sums
	Read    uint64   `json:"read,omitempty"`

	Nearest []byte `json:"nearest,omitempty"` // the same for sums.nearest, if scales are searched

	Damping float64 `json:"damping,omitempty"` // as in sums

	Name   string `json:"name"` // for the result of Merge
	Format string `json:"format"`
	Rows   int    `json:"rows"`
	Cols   int    `json:"cols"`
}

// tensor returns the description of the weight for Result.Tensors, without its errors.
func (d *doneTiles) tensor() verify.Tensor {
	return verify.Tensor{Name: d.Name, Format: d.Format, Rows: d.Rows, Cols: d.Cols}
}

// tile returns the first position that is not done.
func (d *doneTiles) tile() checkpoint.Tile {
	return checkpoint.Tile{Weight: d.Weight, From: d.Row, FromCol: d.Col}
}

// journalVersion is incremented when journals of the earlier version cannot be resumed.
const journalVersion = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumLength is the length of the hexadecimal checksum of a line.
const checksumLength = 8

// maxJournal is the maximum size of a journal in bytes. The journal of a conversion of 100 000
// tensors has about 20 MB.
const maxJournal = 1 << 30

// line returns the line of a record.
func (r record) line() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%0*x %s\n", checksumLength, crc32.Checksum(text, castagnoli), text), nil
}

// parseLine returns the record of a line without its newline. ok is false if the line is
// damaged.
func parseLine(line []byte) (r record, ok bool) {
	if len(line) <= checksumLength || line[checksumLength] != ' ' {
		return record{}, false
	}
	sum, err := strconv.ParseUint(string(line[:checksumLength]), 16, 32)
	text := line[checksumLength+1:]
	if err != nil || crc32.Checksum(text, castagnoli) != uint32(sum) {
		return record{}, false
	}
	err = json.Unmarshal(text, &r)
	return r, err == nil
}

// readJournal returns the records of a journal before the first damaged one, and their size in
// bytes. A journal that does not exist has no records.
func readJournal(path string) (records []record, size int64, err error) {
	data, err := limits.ReadFile(path, maxJournal)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: read the journal of the earlier run: %w", path, err)
	}
	for at := 0; at < len(data); {
		n := bytes.IndexByte(data[at:], '\n')
		if n < 0 {
			break
		}
		r, ok := parseLine(data[at : at+n])
		if !ok {
			break
		}
		at += n + 1
		records, size = append(records, r), int64(at)
	}
	return records, size, nil
}

// A journal is an open journal. It is safe for concurrent use.
type journal struct {
	lock   sync.Mutex
	f      *os.File
	closed bool
}

// openJournal opens a journal and truncates it to size bytes.
func openJournal(path string, size int64) (*journal, error) {
	f, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return &journal{f: f}, nil
}

// openOwn opens a file of a partial directory, or creates it. It does not follow links.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if !errors.Is(err, os.ErrExist) {
		return f, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	named, namedErr := os.Lstat(path)
	if err == nil && namedErr == nil && opened.Mode().IsRegular() && os.SameFile(opened, named) {
		return f, nil
	}
	return nil, errors.Join(fmt.Errorf("%s: not a regular file: remove it", path), err, namedErr, f.Close())
}

// append writes records and syncs them.
func (j *journal) append(records ...record) error {
	if len(records) == 0 {
		return nil
	}
	if err := j.write(records...); err != nil {
		return err
	}
	return j.f.Sync()
}

// write writes records.
func (j *journal) write(records ...record) error {
	var all []byte
	for _, r := range records {
		line, err := r.line()
		if err != nil {
			return err
		}
		all = append(all, line...)
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	_, err := j.f.Write(all)
	return err
}

// close closes the file, if it is open.
func (j *journal) close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	return j.f.Close()
}

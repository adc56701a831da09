package windows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/tensor"
)

// residuals is a file with the residual streams of all windows of a stack, in F32, in order.
type residuals struct {
	file *os.File
	rows int // of all windows
	cols int
	sum  *checksum.Sum // of what was read or written
	at   int64         // bytes that were read or written
	want uint64        // the checksum of a file that is read
	buf  []byte
}

// residuals returns the name of the file of the residual stream of a stack after a number of layers.
func (s *Stream) residuals(stack, layers int) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%d-%d.f32", stack, layers))
}

// Held returns the bytes of the activations that interrupted runs left.
func (s *Stream) Held(stacks, layers int) (bytes int64) {
	for k := range stacks {
		for l := range layers + 1 {
			if info, err := os.Lstat(s.residuals(k, l)); err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
		}
	}
	return bytes
}

// create creates the files of all stacks after a number of layers; nil of those without a stream of their own. It replaces those of
// an interrupted run, and follows no links.
func (w *walk) create(layers int) (files []*residuals, err error) {
	for k := range w.stacks {
		if !w.own(k, layers) {
			files = append(files, nil)
			continue
		}
		name := w.Stream.residuals(k, layers)
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, closeAll(files))
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		files = append(files, &residuals{file: f, rows: w.rows()})
	}
	return files, nil
}

// open opens the files that create made. One of another size is an error.
func (w *walk) open(layers int) (files []*residuals, err error) {
	if len(w.sums) != len(w.stacks) {
		return nil, fmt.Errorf("%s: the state has checksums of %s, want %d: remove the directory", w.Stream.Dir, count(len(w.sums), "file"),
			len(w.stacks))
	}
	column := int64(4 * w.rows())
	for k := range w.stacks {
		if !w.own(k, layers) {
			files = append(files, nil)
			continue
		}
		name := w.Stream.residuals(k, layers)
		f, info, err := limits.Open(name)
		if err != nil {
			return nil, errors.Join(&damagedFile{name, limits.Cause(err)}, closeAll(files))
		}
		size := info.Size()
		files = append(files, &residuals{file: f, cols: int(size / column), sum: checksum.New(size), want: w.sums[k]})
		if size == 0 || size%column != 0 {
			return nil, errors.Join(&damagedFile{name, errors.New("the file is incomplete")}, closeAll(files))
		}
	}
	return files, nil
}

// rows returns the number of tokens of all windows.
func (w *walk) rows() (n int) {
	for _, window := range w.Windows {
		n += len(window.Tokens)
	}
	return n
}

// A damagedFile is the error of a file that is not what a run wrote.
type damagedFile struct {
	name    string
	problem error
}

func (e *damagedFile) Error() string {
	return fmt.Sprintf("%s: %v: remove its directory and begin again", e.name, e.problem)
}

// append writes the residual stream of the next window.
func (r *residuals) append(x tensor.Dense) (err error) {
	r.buf = r.buf[:0]
	for i := range x.Rows {
		if r.buf, err = binary.Append(r.buf, binary.LittleEndian, x.Row(i)); err != nil {
			return err
		}
	}
	if r.sum == nil {
		r.sum = checksum.New(int64(4 * r.rows * x.Cols))
	}
	r.sum.Add(r.buf, r.at)
	r.at += int64(len(r.buf))
	_, err = r.file.Write(r.buf)
	return err
}

// next reads the residual stream of the next window.
func (r *residuals) next(rows int) (tensor.Dense, error) {
	x := tensor.New(rows, r.cols)
	r.buf = append(r.buf[:0], make([]byte, 4*len(x.Data))...)
	if _, err := io.ReadFull(r.file, r.buf); err != nil {
		return x, &damagedFile{r.file.Name(), err}
	}
	r.sum.Add(r.buf, r.at)
	r.at += int64(len(r.buf))
	_, err := binary.Decode(r.buf, binary.LittleEndian, x.Data)
	return x, err
}

// verify returns an error if the bytes that were read are not those that were written.
func (r *residuals) verify() error {
	if r.sum.Value() != r.want {
		return &damagedFile{r.file.Name(), errors.New("the file is damaged: its checksum differs")}
	}
	return nil
}

// eachWindow calls f with what reads the residual streams of every window after a number of layers, and verifies the
// files that it read: f reads each stream of each stack once.
func (w *walk) eachWindow(layers int, f func(i int, read func(k int) (tensor.Dense, error)) error) error {
	files, err := w.open(layers)
	if err != nil {
		return err
	}
	for i := 0; i < len(w.Windows) && err == nil; i++ {
		err = f(i, func(k int) (tensor.Dense, error) { return files[k].next(len(w.Windows[i].Tokens)) })
	}
	for k := 0; k < len(files) && err == nil; k++ {
		if files[k] != nil {
			err = files[k].verify()
		}
	}
	return errors.Join(err, closeAll(files))
}

// finish makes written files durable and returns their checksums; 0 without a file.
func finish(files []*residuals) (sums []uint64, err error) {
	for _, f := range files {
		sum := uint64(0)
		if f != nil {
			err = errors.Join(err, f.file.Sync(), f.file.Close())
			sum = f.sum.Value()
		}
		sums = append(sums, sum)
	}
	return sums, err
}

func closeAll(files []*residuals) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.file.Close())
		}
	}
	return errors.Join(errs...)
}

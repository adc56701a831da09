package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// Documents is a corpus of separate texts. It implements Batches with the byte values as tokens. A
// document of at most length+1 bytes is one sequence; a longer one is cut into several, so that every
// byte but the first is a target once. Shorter sequences are padded. Every sixteenth document is for
// validation.
type Documents struct {
	Corpus // the documents, one after the other

	ends [2][]int // of the documents for training and for validation, in their texts

	mutex  sync.Mutex
	length int       // of the sequences in pieces
	pieces [2][]span // of the texts: a sequence and the target of its last token
}

// OpenDocuments reads sources like OpenCorpus. A document ends with its file and after each separator,
// which belongs to it; with an empty separator, only with its file. Documents of one byte, such as
// empty lines, are left out.
func OpenDocuments(separator string, sources ...string) (*Documents, error) {
	files, sources, err := openSources(sources)
	if err != nil {
		return nil, err
	}
	d := &Documents{Corpus: Corpus{Sources: sources}}
	count := 0
	for _, file := range files {
		for len(file) > 0 {
			end := len(file)
			if at := bytes.Index(file, []byte(separator)); separator != "" && at >= 0 {
				end = at + len(separator)
			}
			if end > 1 {
				d.add(file[:end], count%splitEvery == splitEvery-1)
				count++
			}
			file = file[end:]
		}
	}
	if count < splitEvery {
		return nil, fmt.Errorf("%s: got %d documents of more than one byte, want at least %d, of which one is for validation: use more text "+
			"or another separator", d.Name(), count, splitEvery)
	}
	d.digest = d.hash()
	return d, nil
}

// add appends a document.
func (d *Documents) add(text []byte, validation bool) {
	part, ends := &d.train, &d.ends[0]
	if validation {
		part, ends = &d.validation, &d.ends[1]
	}
	*part = append(*part, text...)
	*ends = append(*ends, len(*part))
}

// hash returns the SHA-256 of the documents and their ends.
func (d *Documents) hash() string {
	sum := sha256.New()
	for i, part := range [][]byte{d.train, d.validation} {
		fmt.Fprintln(sum, "documents", d.ends[i])
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// cut returns the sequences of the documents for training and for validation.
func (d *Documents) cut(length int) [2][]span {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.length == length {
		return d.pieces
	}
	d.length, d.pieces = length, [2][]span{}
	for i, ends := range d.ends {
		from := 0
		for _, end := range ends {
			for ; from < end-1; from += length {
				d.pieces[i] = append(d.pieces[i], span{from, min(from+length+1, end)})
			}
			from = end
		}
	}
	return d.pieces
}

// Training implements Batches: sequences that are drawn at random, each with the same probability.
func (d *Documents) Training(seed uint64, step, sequences, length int) (tokens, targets []int32, err error) {
	pieces := d.cut(length)[0]
	var batch []span
	for _, i := range trainingStarts(len(pieces), 0, sequences, seed, step) {
		batch = append(batch, pieces[i])
	}
	tokens, targets = padded(d.train, batch, length)
	return tokens, targets, nil
}

// Validation implements Batches: sequences that are evenly spread over the documents for validation.
func (d *Documents) Validation(sequences, length int) (tokens, targets []int32, err error) {
	pieces := d.cut(length)[1]
	count := min(sequences, len(pieces))
	batch := make([]span, count)
	for i := range batch {
		batch[i] = pieces[i*len(pieces)/count]
	}
	tokens, targets = padded(d.validation, batch, length)
	return tokens, targets, nil
}

// padded returns the given parts of a text as sequences that padding extends to the given length: the
// target of a byte is the next one.
func padded(text []byte, parts []span, length int) (tokens, targets []int32) {
	for _, p := range parts {
		for i := p.From; i < p.From+length; i++ {
			token, target := int32(Padding), int32(Padding)
			if i < p.To-1 {
				token, target = int32(text[i]), int32(text[i+1])
			}
			tokens, targets = append(tokens, token), append(targets, target)
		}
	}
	return tokens, targets
}

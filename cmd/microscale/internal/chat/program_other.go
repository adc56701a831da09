//go:build !linux

package chat

import (
	"errors"
	"os"
)

// program is the file that was executed, as it was at the start of the process.
var program, programInfo, programError = func() (string, os.FileInfo, error) {
	path, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	info, err := os.Stat(path)
	return path, info, err
}()

// thisProgram returns the path of the program of this process. It is an error if another file has the name now.
func thisProgram() (string, error) {
	if programError != nil {
		return "", programError
	}
	now, err := os.Stat(program)
	if err != nil || !os.SameFile(now, programInfo) || now.Size() != programInfo.Size() || !now.ModTime().Equal(programInfo.ModTime()) {
		return "", errors.New("the file of the program was replaced or removed: start the program again")
	}
	return program, nil
}

/* Prints a file of an image. */
#include <extant.h>
#include <stdio.h>

int main(void) {
    char text[256] = "";
    extant_fs *fs;
    extant_file *file;
    if (extant_open("disk.img", NULL, &fs) || extant_file_open(fs, "/etc/hostname", EXTANT_O_READ, 0, &file))
        return fprintf(stderr, "%s\n", extant_message()), 1;
    extant_file_read(file, text, sizeof text - 1, 0);
    printf("%s", text);
    extant_file_close(file);
    return extant_close(fs) != 0;
}

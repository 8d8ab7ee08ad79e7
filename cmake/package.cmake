# cpack -G DEB in a build folder: a Debian package of what cmake --install installs, for the Debian it is built on.
set(CPACK_PACKAGE_NAME plimsoll)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "How deep may this GPU be loaded: memory-saving strategies of training, planned and simulated")
set(CPACK_PACKAGE_CONTACT "the authors of Plimsoll (CITATION.cff)")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-numpy")  # figures of reports, import plimsoll
include(CPack)
